//! Tells the program how well it was optimised, so that it can warn.

use std::io::Write;

fn main() -> std::io::Result<()> {
    let level = std::env::var("OPT_LEVEL").unwrap_or_default();
    let mut cargo = std::io::stdout();
    writeln!(cargo, "cargo::rustc-env=ATPM_OPT_LEVEL={level}")?;
    writeln!(cargo, "cargo::rerun-if-changed=build.rs")
}
