//! How much memory the machine has, from Linux's account of it.

/// Bytes of a field of /proc/meminfo, such as `MemAvailable:` (what can be had without swapping); `None` where the
/// system does not tell.
pub fn memory_bytes(field: &str) -> Option<u64> {
    parse(&std::fs::read_to_string("/proc/meminfo").ok()?, field)
}

fn parse(meminfo: &str, field: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Bytes in words.
pub fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_account() {
        let text = "MemTotal: 9 kB\nMemAvailable:    2048 kB\n";
        assert_eq!(parse(text, "MemAvailable:"), Some(2 << 20));
        assert_eq!(parse(text, "MemFree:"), None);
    }
}
