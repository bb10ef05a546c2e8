//! `atpm-train generate`: continues prompts, as a stream.

use std::fmt::Write as _;
use std::io::{BufRead, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;

use super::model::{self, Opened};
use super::sampler::Sampling;
use super::session::{Answer, Ending, Session};
use crate::report::output;
use crate::run::device;
use crate::run::exit::user;

const EXAMPLES: &str = "\
Examples:
  atpm-train generate --model runs/debug --prompt 'Ada lives in'
  atpm-train generate --model runs/debug --prompt 'Ada lives in' --prompt ' Bob lives in' --greedy
  atpm-train generate --model export/tiny --interactive
  atpm-train generate --model runs/debug --prompt 'Ada lives in Paris.' --max-tokens 0 --save-state ada.state
  atpm-train generate --model runs/debug --load-state ada.state --prompt ' Ada lives in'

Several prompts share one memory of fixed size: each is read after the prompts and answers before it.
The same model, prompts, flags and seed give the same text.

With --json: model, step, seed, temperature, top_p, answers (prompt, prompt_tokens, text, tokens, ending:
end_of_text or max_tokens), tokens_read, state_bytes, prefill_tokens_per_s, decode_tokens_per_s (null if there
was nothing to time).";

/// Flags of `generate`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A run folder (its newest complete checkpoint is taken), a checkpoint, or an export.
    #[arg(long, value_name = "PATH")]
    pub model: PathBuf,
    /// Text to continue; may be repeated.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Vec<String>,
    /// Most tokens of each answer; 0 only reads the prompt.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub max_tokens: usize,
    /// Divides the logits: below 1 more certain, above 1 more surprising, 0 always the likeliest token.
    #[arg(long, value_name = "X", default_value_t = 0.8, allow_negative_numbers = true)]
    pub temperature: f64,
    /// Draw only from the likeliest tokens that together reach this probability.
    #[arg(long, value_name = "P", default_value_t = 0.95, allow_negative_numbers = true)]
    pub top_p: f64,
    /// Seed of the draws.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Always take the likeliest token; as `--temperature 0`.
    #[arg(long)]
    pub greedy: bool,
    /// Write the memory to this file at the end.
    #[arg(long, value_name = "FILE")]
    pub save_state: Option<PathBuf>,
    /// Go on from the memory in this file.
    #[arg(long, value_name = "FILE")]
    pub load_state: Option<PathBuf>,
    /// Read prompts from standard input, one a line, until it ends.
    #[arg(long, conflicts_with = "json")]
    pub interactive: bool,
    /// Where to compute: `auto` (the CPU), `cpu`, `cuda` or `cuda:N`; the last two in a build with CUDA.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub device: String,
    /// Print one JSON object at the end instead of the text.
    #[arg(long)]
    pub json: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report<'a> {
    model: &'a Path,
    step: Option<u64>,
    seed: u64,
    temperature: f64,
    top_p: f64,
    answers: Vec<AnswerReport<'a>>,
    tokens_read: u64,
    state_bytes: usize,
    prefill_tokens_per_s: Option<f64>,
    decode_tokens_per_s: Option<f64>,
}

#[derive(Debug, Serialize)]
struct AnswerReport<'a> {
    prompt: &'a str,
    prompt_tokens: usize,
    text: String,
    tokens: usize,
    ending: Ending,
}

/// Opens the model and answers every prompt.
///
/// # Errors
/// A model or memory that cannot be opened, flags that make no sense, logits that are not finite.
pub fn run(args: &Args) -> anyhow::Result<()> {
    model::expect_folder(&args.model)?;
    let sampling = sampling(args)?;
    if args.prompt.is_empty() && !args.interactive && args.load_state.is_none() {
        return Err(user("nothing to continue: give --prompt TEXT, --load-state FILE or --interactive"));
    }
    let opened = model::open_on(&args.model, &device::open(&args.device)?)?;
    let mut session = Session::new(&opened, sampling)?;
    if let Some(path) = &args.load_state {
        session.load(path)?;
    }
    // What was read until then is still to be saved.
    output::read_or_not(answer_all(args, sampling, &opened, &mut session))?;
    match &args.save_state {
        Some(path) => {
            session.save(path).with_context(|| format!("cannot save the memory to {}", path.display()))
        }
        None => Ok(()),
    }
}

fn answer_all(
    args: &Args,
    sampling: Sampling,
    opened: &Opened,
    session: &mut Session<'_>,
) -> anyhow::Result<()> {
    // A saved memory alone goes on from where it stopped.
    let nothing = [String::new()];
    let prompts = if args.prompt.is_empty() && !args.interactive { &nothing } else { args.prompt.as_slice() };
    if args.json {
        report(args, sampling, opened, session, prompts)?;
    } else {
        for prompt in prompts {
            output::part(prompt)?;
            session.answer(prompt, args.max_tokens, |text| output::part(text))?;
            output::line("")?;
        }
    }
    if args.interactive { converse(session, args.max_tokens) } else { Ok(()) }
}

fn sampling(args: &Args) -> anyhow::Result<Sampling> {
    if !(args.temperature.is_finite() && args.temperature >= 0.0) {
        return Err(user(format!("--temperature must be 0 or more, got {}", args.temperature)));
    }
    if !(args.top_p > 0.0 && args.top_p <= 1.0) {
        return Err(user(format!("--top-p must be above 0 and at most 1, got {}", args.top_p)));
    }
    let temperature = if args.greedy { 0.0 } else { args.temperature };
    Ok(Sampling { temperature, top_p: args.top_p, seed: args.seed })
}

fn report(
    args: &Args,
    sampling: Sampling,
    opened: &Opened,
    session: &mut Session<'_>,
    prompts: &[String],
) -> anyhow::Result<()> {
    let mut answers = Vec::new();
    let (mut prompt_tokens, mut prompt_time) = (0, Duration::ZERO);
    let (mut steps, mut steps_time) = (0, Duration::ZERO);
    for prompt in prompts {
        let mut text = String::new();
        let answer: Answer = session.answer(prompt, args.max_tokens, |piece| Ok(text.write_str(piece)?))?;
        prompt_tokens += answer.prompt_tokens;
        prompt_time += answer.prompt_time;
        steps += answer.steps;
        steps_time += answer.steps_time;
        answers.push(AnswerReport {
            prompt,
            prompt_tokens: answer.prompt_tokens,
            text,
            tokens: answer.tokens,
            ending: answer.ending,
        });
    }
    output::json(&Report {
        model: &opened.path,
        step: opened.step,
        seed: sampling.seed,
        temperature: sampling.temperature,
        top_p: sampling.top_p,
        answers,
        tokens_read: session.tokens_read(),
        state_bytes: session.state_bytes(),
        prefill_tokens_per_s: rate(prompt_tokens, prompt_time),
        decode_tokens_per_s: rate(steps, steps_time),
    })
}

fn rate(count: usize, time: Duration) -> Option<f64> {
    (count > 0 && !time.is_zero()).then(|| count as f64 / time.as_secs_f64())
}

/// One prompt a line, one answer after each.
fn converse(session: &mut Session<'_>, max_tokens: usize) -> anyhow::Result<()> {
    let stdin = std::io::stdin();
    let terminal = stdin.is_terminal();
    let mut lines = stdin.lock().lines();
    loop {
        if terminal {
            output::part("> ")?;
        }
        let Some(line) = lines.next() else { return Ok(()) };
        let line = line.context("cannot read standard input")?;
        if line.is_empty() {
            continue;
        }
        session.answer(&line, max_tokens, |text| output::part(text))?;
        output::line("")?;
    }
}
