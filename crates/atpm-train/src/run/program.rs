//! Which build this is: results repeat to the bit with one program, not from one build to another.

use std::fs::File;
use std::sync::OnceLock;

/// What is said of a file that does not name its program.
pub const UNKNOWN: &str = "unknown";

/// The first 16 hexadecimal digits of the BLAKE3 digest of this program's own file; [`UNKNOWN`] where it cannot be read.
pub fn fingerprint() -> &'static str {
    static FINGERPRINT: OnceLock<String> = OnceLock::new();
    FINGERPRINT.get_or_init(|| digest().unwrap_or_else(|_| UNKNOWN.into()))
}

fn digest() -> std::io::Result<String> {
    // Linux gives the file that was started even when another has taken its place.
    let file = File::open("/proc/self/exe").or_else(|_| File::open(std::env::current_exe()?))?;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file)?;
    Ok(hasher.finalize().to_hex()[..16].to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_of_this_programs_file() {
        let whole = blake3::hash(&std::fs::read(std::env::current_exe().unwrap()).unwrap());
        assert_eq!(super::fingerprint(), &whole.to_hex()[..16]);
    }
}
