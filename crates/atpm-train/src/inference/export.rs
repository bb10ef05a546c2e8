//! `atpm-train export`: a checkpoint as a Hugging Face folder, reopened and compared after writing.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use atpm_data::Tokenizer;
use atpm_model::{ModelKind, Parameter};
use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};

use super::export_config::ExportConfig;
use super::model::{self, EXPORT_CONFIG, EXPORT_MODEL, Opened, named};
use crate::checkpoint::digest;
use crate::checkpoint::tensor_file::{self, Encoding, TensorFile};
use crate::report::output;
use crate::run::exit::user;

const EXAMPLES: &str = "\
Examples:
  atpm-train export --checkpoint runs/tiny --out export/tiny
  atpm-train export --checkpoint runs/tiny/checkpoints/step-00001000 --out export/tiny-bf16 --dtype bf16

The folder holds config.json, model.safetensors, generation_config.json, tokenizer.json and
tokenizer_config.json; docs/checkpoint-format.md lists the names of the tensors.

With --json: out, checkpoint, step, dtype, tensors, parameters, bytes (of model.safetensors), tied.";

/// Flags of `export`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A run folder (its newest complete checkpoint is taken) or a checkpoint.
    #[arg(long, value_name = "PATH")]
    pub checkpoint: PathBuf,
    /// The folder to write; it must be new or empty.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// How numbers are stored.
    #[arg(long, value_enum, default_value_t = Dtype::F32)]
    pub dtype: Dtype,
    /// Print one JSON object about what was written.
    #[arg(long)]
    pub json: bool,
}

/// How an export stores numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// Exactly, in 4 bytes.
    F32,
    /// Rounded to bfloat16, in 2 bytes.
    Bf16,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report<'a> {
    out: &'a Path,
    checkpoint: &'a Path,
    step: Option<u64>,
    dtype: Dtype,
    tensors: usize,
    parameters: usize,
    bytes: u64,
    tied: bool,
}

/// Writes the export.
///
/// # Errors
/// A checkpoint that cannot be opened, a folder that is not empty, or whatever the file system refuses; the
/// folder is then not there.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let &Args { ref checkpoint, ref out, dtype, json } = args;
    refuse_used(out)?;
    let opened = model::open(checkpoint)?;
    let kind = opened.model.config().kind;
    if kind != ModelKind::Atpm {
        return Err(user(format!(
            "{}: its model.kind is \"{}\", and only \"atpm\" has an export; its checkpoints hold safetensors already",
            checkpoint.display(),
            kind.name()
        )));
    }
    let encoding = match dtype {
        Dtype::F32 => Encoding::F32,
        Dtype::Bf16 => Encoding::Bf16,
    };
    let bytes = write(&opened, out, encoding)?;
    let parameters = opened.model.parameters();
    let report = Report {
        out,
        checkpoint: &opened.path,
        step: opened.step,
        dtype,
        tensors: parameters.len(),
        parameters: parameters.iter().map(|parameter| parameter.value.elem_count()).sum(),
        bytes,
        tied: opened.model.config().tied,
    };
    if json {
        return output::json(&report);
    }
    output::line(format_args!(
        "{}: {} parameters in {} tensors, {} bytes, read back and compared",
        out.display(),
        report.parameters,
        report.tensors,
        report.bytes
    ))
}

fn refuse_used(out: &Path) -> anyhow::Result<()> {
    match fs::read_dir(out) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(user(format!("--out {}: the folder is not empty", out.display()))),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(user(format!("--out {}: {error}", out.display()))),
    }
}

/// Writes the folder beside its place, compares it, and renames it; bytes of its tensors.
fn write(opened: &Opened, out: &Path, encoding: Encoding) -> anyhow::Result<u64> {
    let beside = beside(out)?;
    fs::create_dir_all(&beside)
        .map_err(|error| user(format!("cannot create {}: {error}", beside.display())))?;
    let written = write_files(opened, &beside, encoding).and_then(|bytes| {
        digest::sync_folder(&beside)?;
        fs::rename(&beside, out).with_context(|| format!("cannot rename {}", beside.display()))?;
        Ok(bytes)
    });
    if written.is_err()
        && let Err(error) = fs::remove_dir_all(&beside)
    {
        tracing::warn!("cannot remove {}: {error}", beside.display());
    }
    written
}

fn beside(out: &Path) -> anyhow::Result<PathBuf> {
    let name = out
        .file_name()
        .ok_or_else(|| user(format!("--out {}: this is no name for a folder", out.display())))?;
    Ok(out.with_file_name(format!(".tmp-{}-{}", name.to_string_lossy(), std::process::id())))
}

fn write_files(opened: &Opened, folder: &Path, encoding: Encoding) -> anyhow::Result<u64> {
    let (model, tokenizer) = (&opened.model, &opened.tokenizer);
    let parameters = model.parameters();
    let path = folder.join(EXPORT_MODEL);
    let digest = tensor_file::write(&path, &named(&parameters), encoding, ("format", "pt"))?;
    compare(&path, &parameters, encoding)?;

    tokenizer.save(folder)?;
    let written = Tokenizer::open(&folder.to_string_lossy())?;
    let essence = |tokenizer: &Tokenizer| (tokenizer.vocab_size(), tokenizer.bos_id(), tokenizer.eos_id());
    ensure!(
        essence(&written) == essence(tokenizer),
        "the tokenizer did not survive being written: ids, beginning-of-text and end-of-text {:?} became {:?}",
        essence(tokenizer),
        essence(&written)
    );
    let config = ExportConfig::new(model.config(), tokenizer, opened.bos, opened.eos, encoding);
    for (name, value) in [
        (EXPORT_CONFIG, serde_json::to_value(config)?),
        ("generation_config.json", generation_config(tokenizer.eos_id())),
    ] {
        digest::write_file(&folder.join(name), &serde_json::to_vec_pretty(&value)?)?;
    }
    Ok(digest.bytes)
}

/// Reads every tensor back and compares it, bit for bit, with what it was to become.
fn compare(path: &Path, parameters: &[Parameter], encoding: Encoding) -> anyhow::Result<()> {
    let file = TensorFile::open(path)?;
    file.expect(&named(parameters), &[encoding])?;
    for parameter in parameters {
        let expected = atpm_core::read_f32(&parameter.value)?;
        let found = file.read_f32(&parameter.name)?;
        let same = |(expected, found): (&f32, &f32)| encoding.rounded(*expected).to_bits() == found.to_bits();
        ensure!(
            expected.iter().zip(&found).all(same),
            "{}: `{}` reads back with other values than were written",
            path.display(),
            parameter.name
        );
    }
    Ok(())
}

fn generation_config(eos: u32) -> Value {
    json!({"eos_token_id": eos, "do_sample": true, "temperature": 0.8, "top_p": 0.95, "max_new_tokens": 200})
}
