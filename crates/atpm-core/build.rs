//! Compiles the kernels of `kernels/`: with nvcc for feature `cuda`, with g++ and the emulation for feature
//! `emulated-cuda`. Without either it does nothing.

use std::env;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

type Outcome = Result<(), String>;

fn main() {
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    println!("cargo::rerun-if-changed=build.rs");
    let outcome = if env::var_os("CARGO_FEATURE_CUDA").is_some() {
        embed(&kernels, &out)
    } else if env::var_os("CARGO_FEATURE_EMULATED_CUDA").is_some() {
        emulate(&kernels, &out)
    } else {
        Ok(())
    };
    if let Err(problem) = outcome {
        println!("cargo::error={problem}");
    }
}

/// Writes `fatbins.rs`, a table of file names and fatbins: code for sm_80 and sm_90, and PTX for what comes after.
fn embed(kernels: &Path, out: &Path) -> Outcome {
    let options = kernels.join("nvcc_options");
    // Not all of `kernels`: tests and emulation change more often than nvcc is quick. A new file is in launch.cpp.
    let shared = ["common", "mixer", "emulation/launch.cpp"].map(|part| kernels.join(part));
    for input in sources(kernels)?.iter().chain(&shared).chain([&options]) {
        println!("cargo::rerun-if-changed={}", input.display());
    }
    println!("cargo::rerun-if-env-changed=NVCC");
    println!("cargo::rerun-if-env-changed=CUDA_HOME");
    let nvcc = match (env::var_os("NVCC"), env::var_os("CUDA_HOME")) {
        (Some(nvcc), _) => nvcc,
        (None, Some(home)) => Path::new(&home).join("bin/nvcc").into_os_string(),
        (None, None) => OsString::from("nvcc"),
    };
    let mut table = String::from("[\n");
    for source in sources(kernels)? {
        let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let fatbin = out.join(format!("{name}.fatbin"));
        let mut command = Command::new(&nvcc);
        command.arg("-fatbin").arg("--options-file").arg(&options);
        run(
            command.arg(&source).arg("-o").arg(&fatbin),
            "set NVCC or CUDA_HOME, or run `make cuda-toolkit`",
        )?;
        let fatbin = fatbin.to_string_lossy();
        writeln!(table, "    ({name:?}, include_bytes!({fatbin:?}).as_slice()),")
            .map_err(|error| error.to_string())?;
    }
    table.push(']');
    std::fs::write(out.join("fatbins.rs"), table).map_err(|error| error.to_string())
}

/// The `.cu` files, in a fixed order.
fn sources(kernels: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(kernels).map_err(|error| format!("{}: {error}", kernels.display()))?;
    let mut sources: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    sources.retain(|path| path.extension().is_some_and(|extension| extension == "cu"));
    sources.sort();
    Ok(sources)
}

/// Makes a static library of the emulated kernels and links it.
fn emulate(kernels: &Path, out: &Path) -> Outcome {
    println!("cargo::rerun-if-changed={}", kernels.display());
    println!("cargo::rerun-if-env-changed=CXX");
    let compiler = env::var_os("CXX").unwrap_or_else(|| "g++".into());
    let mut archive = Command::new("ar");
    archive.arg("crs").arg(out.join("libemulated_kernels.a"));
    for part in ["emulation", "launch"] {
        let object = out.join(part).with_extension("o");
        let mut command = Command::new(&compiler);
        command.args(["-std=c++17", "-O2", "-fPIC", "-Wno-unknown-pragmas", "-c"]);
        command.arg(kernels.join("emulation").join(part).with_extension("cpp")).arg("-o").arg(&object);
        run(&mut command, "feature `emulated-cuda` needs g++; set CXX")?;
        archive.arg(object);
    }
    run(&mut archive, "feature `emulated-cuda` needs ar")?;
    println!("cargo::rustc-link-search=native={}", out.display());
    println!("cargo::rustc-link-lib=static=emulated_kernels");
    println!("cargo::rustc-link-lib=stdc++");
    Ok(())
}

/// Runs a command; `advice` is for where there is no such program.
fn run(command: &mut Command, advice: &str) -> Outcome {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.output() {
        Err(error) => Err(format!("{program}: {error}; {advice}")),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr).replace('\n', "; ");
            Err(format!("{program} failed: {text}"))
        }
    }
}
