//! Tells the program how well it was optimised, so that it can warn.

fn main() {
    let level = std::env::var("OPT_LEVEL").unwrap_or_default();
    cargo_says(&format!("rustc-env=ATPM_OPT_LEVEL={level}"));
    cargo_says("rerun-if-changed=build.rs");
}

fn cargo_says(instruction: &str) {
    println!("cargo::{instruction}");
}
