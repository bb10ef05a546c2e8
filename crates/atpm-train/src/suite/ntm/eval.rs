//! `suite ntm eval`: how a machine fares at sizes beyond those of training.

use std::path::PathBuf;

use atpm_data::synthetic::Split;
use atpm_data::synthetic::vector::{VectorStream, VectorTask};
use serde::Serialize;

use super::trainer::{Accuracy, evaluate};
use super::{expect_size, model, pictures, train};
use crate::report::output;
use crate::report::plot::Picture as _;
use crate::report::plot::lines::{Line, Lines};
use crate::run::exit::user;

const EXAMPLES: &str = "\
Examples:
  atpm-train suite ntm eval --model runs/ntm-copy
  atpm-train suite ntm eval --model runs/ntm-copy --sizes 20,40,80,120 --out copy.svg --json

Without --sizes: the sizes of training up to eight times the largest.";

/// Flags of `suite ntm eval`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A run folder, or one checkpoint.
    #[arg(long, value_name = "PATH")]
    pub model: PathBuf,
    /// Sizes, in the task's unit, in any order.
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub sizes: Vec<usize>,
    /// Batches at each size.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub batches: u64,
    /// Seed of the sequences.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// The picture, an SVG; the PNG lies beside it under the same name.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Print one JSON object: task, unit, trained (smallest and largest size), points (size, and its accuracy).
    #[arg(long)]
    pub json: bool,
}

/// The length-generalisation curve.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Curve {
    /// The task.
    pub task: String,
    /// What sizes count.
    pub unit: String,
    /// The smallest and the largest size of training.
    pub trained: (usize, usize),
    /// One a size.
    pub points: Vec<Point>,
}

/// Accuracy at one size.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// The size.
    pub size: usize,
    /// What was reached.
    #[serde(flatten)]
    pub accuracy: Accuracy,
}

/// Measures and reports.
///
/// # Errors
/// A checkpoint or size that cannot be, a picture that cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let curve = measure(args)?;
    if let Some(out) = &args.out {
        let [svg, png] = pictures(out);
        picture(&curve).write(&svg, &png)?;
    }
    if args.json {
        return output::json(&curve);
    }
    output::line(format_args!(
        "{}, trained on {} to {} {}",
        curve.task, curve.trained.0, curve.trained.1, curve.unit
    ))?;
    for point in &curve.points {
        output::line(format_args!("{:>6} {}: {}", point.size, curve.unit, train::words(&point.accuracy)))?;
    }
    Ok(())
}

/// The curve.
///
/// # Errors
/// As [`run`].
pub fn measure(args: &Args) -> anyhow::Result<Curve> {
    let (machine, settings) = model::open(&args.model)?;
    let (task, trained) = (settings.task, (settings.train.least, settings.train.most));
    let mut sizes = if args.sizes.is_empty() { usual_sizes(task, trained) } else { args.sizes.clone() };
    sizes.iter().try_for_each(|&size| expect_size(task, size, "--sizes"))?;
    // The curve goes from left to right, however the sizes were given.
    sizes.sort_unstable();
    sizes.dedup();
    if args.batches == 0 {
        return Err(user("--batches must be at least 1"));
    }
    let stream = VectorStream { task, split: Split::Iid, seed: args.seed, rows: settings.train.rows };
    let point = |size: usize| -> anyhow::Result<Point> {
        let score = evaluate(&machine, &stream, (size, size), args.batches)?;
        Ok(Point { size, accuracy: Accuracy::from(&score) })
    };
    let points = sizes.into_iter().map(point).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(Curve { task: task.name().into(), unit: task.unit().into(), trained, points })
}

/// Within training, at its end, and up to eight times that, as far as the task goes.
fn usual_sizes(task: VectorTask, (least, most): (usize, usize)) -> Vec<usize> {
    let mut sizes = vec![least, usize::midpoint(least, most), most, most * 3 / 2];
    sizes.extend((2..=8).map(|times| most * times));
    sizes.retain(|&size| size <= task.limits().1);
    sizes
}

fn picture(curve: &Curve) -> Lines {
    let line = |name: &str, share: fn(&Accuracy) -> f64| Line {
        name: name.into(),
        points: curve
            .points
            .iter()
            .map(|point| (point.size as f64, 100.0 * share(&point.accuracy)))
            .collect(),
    };
    Lines {
        title: format!("{}: accuracy beyond training", curve.task),
        across: format!("{} (trained up to {})", curve.unit, curve.trained.1),
        up: "% right".into(),
        mark: Some(curve.trained.1 as f64),
        lines: vec![
            line("bits", |accuracy| accuracy.bit_accuracy),
            line("whole sequences", |accuracy| accuracy.sequence_accuracy),
        ],
    }
}
