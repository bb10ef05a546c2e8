//! The `plot` command.

use std::path::PathBuf;

use super::{DEFAULT_SMOOTHING, Options, Summary};
use crate::report::output;
use crate::run::exit::user;

const EXAMPLES: &str = "\
Examples:
  atpm-train plot runs/debug                                   runs/debug/loss.svg and loss.png
  atpm-train plot runs/a runs/b --out compare.svg --title 'Two learning rates'";

/// Draw the loss curves of one or more runs as SVG and PNG.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Run folders (or metrics.jsonl files), one to eight.
    #[arg(required = true, value_name = "RUN_DIR")]
    pub runs: Vec<PathBuf>,
    /// The SVG file; the PNG lies beside it. Default: loss.svg in the run's folder for one run, in
    /// the current folder for several.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Weight of the past in the smoothed line, 0 (raw only) to below 1.
    #[arg(long, value_name = "WEIGHT", default_value_t = DEFAULT_SMOOTHING)]
    pub smooth: f64,
    /// Title of the picture.
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// One JSON object on standard output: `svg`, `png`, and for each of `runs` its `run`,
    /// `last_step`, `final_loss`, `final_validation`, `best_validation`, `gaps`, `tokens`.
    #[arg(long)]
    pub json: bool,
}

/// Draws, and reports on standard output.
///
/// # Errors
/// As [`super::write`], or a standard output that cannot be written.
pub fn run(args: Args) -> anyhow::Result<()> {
    let svg = args.out.unwrap_or_else(|| match args.runs.as_slice() {
        [only] if only.is_dir() => only.join("loss.svg"),
        _ => "loss.svg".into(),
    });
    let png = svg.with_extension("png");
    let options = Options { title: args.title, smoothing: args.smooth };
    let runs = super::write(&args.runs, &options, &svg, &png)
        .map_err(|error| if error.is_users() { user(error) } else { error.into() })?;
    if args.json {
        return output::json(&serde_json::json!({ "svg": svg, "png": png, "runs": runs }));
    }
    for run in &runs {
        output::line(sentence(run))?;
    }
    output::line(format_args!("{}\n{}", svg.display(), png.display()))
}

fn sentence(run: &Summary) -> String {
    let value = |loss: Option<f64>| loss.map_or_else(|| "none".to_owned(), |loss| format!("{loss:.4}"));
    format!(
        "{}: step {}, train {} nats, validation {} (best {}), steps without a finite loss {}",
        run.run,
        run.last_step,
        value(run.final_loss),
        value(run.final_validation),
        value(run.best_validation),
        run.gaps
    )
}
