//! `suite ntm inspect`: where the heads of a trained machine were, step by step, as a picture and as numbers.

use std::path::PathBuf;

use atpm_data::synthetic::Split;
use atpm_data::synthetic::vector::{VectorBatch, VectorStream, VectorTask};
use atpm_model::ntm::Executor;
use serde::Serialize;

use super::{expect_size, model, pictures};
use crate::report::output;
use crate::report::plot::Picture as _;
use crate::report::plot::heat_map::{HeatMaps, Map};

const EXAMPLES: &str = "\
Examples:
  atpm-train suite ntm inspect --model runs/ntm-copy
  atpm-train suite ntm inspect --model runs/ntm-copy --size 20 --index 3 --out weights.svg --json

The picture shows what is read and given, and for each head its weight on every slot (upwards) at every step (to the
right). A machine that copies writes a diagonal, and reads the same one again.";

/// Flags of `suite ntm inspect`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A run folder, or one checkpoint.
    #[arg(long, value_name = "PATH")]
    pub model: PathBuf,
    /// Size of the example, in the task's unit. Default: the largest of training.
    #[arg(long, value_name = "N")]
    pub size: Option<usize>,
    /// Which example.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub index: u64,
    /// The picture, an SVG; the PNG lies beside it under the same name.
    #[arg(long, value_name = "FILE", default_value = "ntm-weights.svg")]
    pub out: PathBuf,
    /// Print one JSON object: task, size, wrong_bits, read and write (head, step, slot), retraced (for copy: the share of
    /// answer steps at which a read head is on the slot that the vector was written to), svg, png.
    #[arg(long)]
    pub json: bool,
}

/// Where the heads were.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Inspection {
    /// The task.
    pub task: String,
    /// The example's size.
    pub size: usize,
    /// Answer bits that were wrong.
    pub wrong_bits: usize,
    /// For copy: share of answer steps at which a read head's largest weight is on the slot where a write head's was when
    /// the vector was shown.
    pub retraced: Option<f64>,
    /// Weights of the read heads: head, step, slot.
    pub read: Vec<Vec<Vec<f32>>>,
    /// Weights of the write heads: head, step, slot.
    pub write: Vec<Vec<Vec<f32>>>,
    /// What is given: probabilities of a one, step and bit.
    #[serde(skip)]
    outputs: Vec<Vec<f32>>,
}

/// Draws and reports.
///
/// # Errors
/// A checkpoint or size that cannot be, a picture that cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let (machine, settings) = model::open(&args.model)?;
    let (task, size) = (settings.task, args.size.unwrap_or(settings.train.most));
    expect_size(task, size, "--size")?;
    let stream = VectorStream { task, split: Split::Iid, seed: settings.seed, rows: 1 };
    let batch = stream.batch(args.index, (size, size));
    let seen = watch(&mut Executor::new(machine)?, task, &batch)?;
    let [svg, png] = pictures(&args.out);
    picture(&seen, task, &batch).write(&svg, &png)?;
    if args.json {
        let mut json = serde_json::to_value(&seen)?;
        json["svg"] = serde_json::json!(svg);
        json["png"] = serde_json::json!(png);
        return output::json(&json);
    }
    let bits = batch.answers.iter().filter(|&&answer| answer).count() * task.outputs();
    output::line(format_args!(
        "{}, {size} {}: {} of {bits} answer bits wrong",
        seen.task,
        task.unit(),
        seen.wrong_bits
    ))?;
    if let Some(retraced) = seen.retraced {
        output::line(format_args!(
            "at {:.0} % of the answer steps a read head is on the slot that the vector was written to",
            100.0 * retraced
        ))?;
    }
    output::line(format_args!("{}\n{}", svg.display(), png.display()))
}

/// Runs one sequence, a row of a batch of one.
///
/// # Errors
/// A machine for another task.
pub fn watch(machine: &mut Executor, task: VectorTask, batch: &VectorBatch) -> anyhow::Result<Inspection> {
    machine.restart();
    let (mut read, mut write, mut outputs, mut wrong_bits) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let lines = batch.inputs.chunks(task.inputs()).zip(batch.targets.chunks(task.outputs()));
    for ((x, targets), &answer) in lines.zip(&batch.answers) {
        let (y, focus) = machine.watch(x)?;
        if answer {
            wrong_bits += y.iter().zip(targets).filter(|&(&y, &target)| (y > 0.0) != (target > 0.5)).count();
        }
        outputs.push(if answer {
            y.iter().map(|y| 1.0 / (1.0 + (-y).exp())).collect()
        } else {
            vec![0.0; y.len()]
        });
        read.push(focus.read);
        write.push(focus.write);
    }
    let (read, write) = (by_head(read), by_head(write));
    let retraced = (task == VectorTask::Copy).then(|| retraced(&read, &write, batch.size));
    Ok(Inspection { task: task.name().into(), size: batch.size, wrong_bits, retraced, read, write, outputs })
}

/// `[step][head]` as `[head][step]`.
fn by_head(steps: Vec<Vec<Vec<f32>>>) -> Vec<Vec<Vec<f32>>> {
    let heads = steps.first().map_or(0, Vec::len);
    let mut out = vec![Vec::with_capacity(steps.len()); heads];
    for step in steps {
        for (head, weights) in out.iter_mut().zip(step) {
            head.push(weights);
        }
    }
    out
}

/// Vector `i` of a copy is shown at step `i` and due at step `size + 1 + i`. The machine may write it a step late, so the
/// write may be that of the step after.
fn retraced(read: &[Vec<Vec<f32>>], write: &[Vec<Vec<f32>>], size: usize) -> f64 {
    let peak = |weights: &Vec<f32>| (0..weights.len()).max_by(|&a, &b| weights[a].total_cmp(&weights[b]));
    let hits = |late: usize| {
        let same = |i: &usize| {
            read.iter().any(|read| {
                let now = peak(&read[size + 1 + i]);
                write.iter().any(|write| peak(&write[i + late]) == now)
            })
        };
        (0..size).filter(same).count()
    };
    hits(0).max(hits(1)) as f64 / size.max(1) as f64
}

fn picture(seen: &Inspection, task: VectorTask, batch: &VectorBatch) -> HeatMaps {
    let rows = |lines: std::slice::Chunks<'_, f32>| lines.map(<[f32]>::to_vec).collect::<Vec<_>>();
    let mut maps = vec![
        Map::new("read by the machine", "channel", rows(batch.inputs.chunks(task.inputs()))),
        Map::new("given by the machine", "bit", seen.outputs.clone()),
    ];
    let heads = |name: &str, heads: &[Vec<Vec<f32>>]| -> Vec<Map> {
        let several = heads.len() > 1;
        let numbered =
            |at: usize| if several { format!("{name} head {}", at + 1) } else { format!("{name} head") };
        heads
            .iter()
            .enumerate()
            .map(|(at, weights)| Map::new(numbered(at), "slot", weights.clone()))
            .collect()
    };
    maps.extend(heads("write", &seen.write));
    maps.extend(heads("read", &seen.read));
    HeatMaps { title: format!("{}, {} {}", seen.task, seen.size, task.unit()), across: "step".into(), maps }
}
