//! `atpm-train doctor`: what the machine and this build have, and whether every op computes what it should.
//!
//! `machine` looks, `cases` are the ops. On a GPU each op's kernels are loaded, run and compared with the CPU, those for
//! activations in bf16 as well; on the CPU the ops are compared with their definitions in plain candle operations.

mod cases;
mod machine;

use std::fmt::Write as _;

use anyhow::anyhow;
use atpm_core::testing::{gradient_tolerance, relative_rms_error, value_tolerance};
use atpm_core::{Precision, cuda};
use candle_core::{DType, Tensor};
use serde::Serialize;

use self::cases::{Case, Outputs};
use self::machine::Machine;
use crate::report::output;
use crate::run::{device, exit};

const EXAMPLES: &str = "\
Examples:
  atpm-train doctor                  the machine, and the ops on the first GPU, or on the CPU if there is none
  atpm-train doctor --device cpu
  atpm-train doctor --device cuda:1 --json

Exit codes: 0 every op is right · 1 an op is wrong or fails, or the GPU does · 2 the build has no such device.

With --json: version, processor, processors, threads, instructions, bf16_products, memory_bytes, available_bytes,
kernels (none, gpu or emulated), versions (of, version), gpus (device, name, compute_capability, free_bytes,
total_bytes), driver_problem, too_old (sentences), device, emulated, compared_with (cpu or definition), ops (op, dtype of its
activations (f32 or bf16), value_error, gradient_error and gate_error (relative RMS; null where there is none),
problem, right), problem, right.";

/// Flags of `doctor`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The device to check: `auto` (the first GPU, if build and machine have one, else the CPU), `cpu`, `cuda` or
    /// `cuda:N`.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub device: String,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    machine: Machine,
    device: String,
    emulated: bool,
    compared_with: &'static str,
    ops: Vec<Row>,
    /// What keeps the device from being checked at all.
    problem: Option<String>,
    right: bool,
}

/// What was found about one op.
#[derive(Debug, Serialize)]
struct Row {
    op: &'static str,
    /// What activations are stored in.
    dtype: &'static str,
    /// The largest relative RMS error of a value.
    value_error: Option<f64>,
    /// The largest of a gradient, but for the gates'.
    gradient_error: Option<f64>,
    /// That of the gates' gradient.
    gate_error: Option<f64>,
    problem: Option<String>,
    right: bool,
}

/// Looks, checks and prints.
///
/// # Errors
/// A device that cannot be opened, an op that fails or computes something else.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let machine = Machine::look();
    let name = if args.device == "auto" && machine.has_gpu() { "cuda:0" } else { &args.device };
    if !args.json {
        output::read_or_not(output::line(machine.render()))?;
    }
    let (rows, problem) = match check(name) {
        Ok(rows) => (rows, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let wrong = rows.iter().filter(|row| !row.right).count();
    let report = Report {
        right: problem.is_none() && wrong == 0,
        problem: problem.as_ref().map(exit::message),
        emulated: machine.is_emulated() && name.starts_with("cuda"),
        compared_with: if name.starts_with("cuda") { "cpu" } else { "definition" },
        device: if name == "auto" { "cpu" } else { name }.into(),
        machine,
        ops: rows,
    };
    if args.json {
        output::read_or_not(output::json(&report))?;
    } else if problem.is_none() {
        output::read_or_not(output::part(report.render()))?;
    }
    match problem {
        Some(problem) => Err(problem),
        None if wrong > 0 => {
            Err(anyhow!("{wrong} of {} ops are wrong on {}", report.ops.len(), report.device))
        }
        None => Ok(()),
    }
}

/// Every op on the device of this name, compared with the CPU, or the CPU's with their definitions.
fn check(name: &str) -> anyhow::Result<Vec<Row>> {
    let host = device::open("cpu")?;
    let cases = cases::all()?;
    let on_host: Vec<_> = cases.iter().map(|case| case.on(&host)).collect();
    let device = device::open(name)?;
    let mut rows = Vec::new();
    for (case, on_host) in cases.iter().zip(on_host) {
        let compared = if cuda::is_gpu(&device) {
            on_host.and_then(|want| Ok((case.on(&device)?, want)))
        } else {
            on_host.and_then(|got| Ok((got, case.by_reference()?)))
        };
        rows.push(Row::of(case, DType::F32, compared));
    }
    if cuda::is_gpu(&device) {
        let rounded: Vec<_> = cases.iter().map(|case| case.rounded_on(&device, Precision::Bf16)).collect();
        let host = device::open("cpu")?;
        for (case, got) in cases.iter().zip(rounded) {
            // Beside the CPU in f32 on the same rounded numbers.
            let Some((got, want)) = got.zip(case.rounded_on(&host, Precision::F32)) else { continue };
            rows.push(Row::of(case, DType::BF16, got.and_then(|got| Ok((got, want?)))));
        }
    }
    // Of this thread, where the device is an emulated one.
    device::open("cpu")?;
    Ok(rows)
}

impl Row {
    /// `compared`: what the device gave with activations in this dtype, and what is right.
    fn of(case: &Case, dtype: DType, compared: atpm_core::Result<(Outputs, Outputs)>) -> Self {
        let errors = compared.and_then(|(mut got, mut want)| {
            let mut gates = None;
            if let Some(place) = case.gates {
                let [got, want] = [&mut got, &mut want].map(|outputs| taken(&mut outputs.gradients, place));
                gates = largest_error(&got, &want)?;
            }
            let values = largest_error(&got.values, &want.values)?;
            Ok([values, largest_error(&got.gradients, &want.gradients)?, gates])
        });
        let name = if dtype == DType::BF16 { "bf16" } else { "f32" };
        let row = |[value_error, gradient_error, gate_error]: [Option<f64>; 3], problem, right| Self {
            op: case.op,
            dtype: name,
            value_error,
            gradient_error,
            gate_error,
            problem,
            right,
        };
        match errors {
            Err(error) => row([None; 3], Some(error.to_string()), false),
            Ok(errors) => {
                // A NaN is not at most anything.
                let fits = errors
                    .iter()
                    .zip(tolerances(dtype))
                    .all(|(error, most)| error.is_none_or(|error| error <= most));
                row(errors, None, fits)
            }
        }
    }
}

/// The tensor at this place, taken out, if there is one.
fn taken(tensors: &mut Vec<Tensor>, place: usize) -> Vec<Tensor> {
    if place < tensors.len() { vec![tensors.remove(place)] } else { Vec::new() }
}

/// What values, gradients and the gates' gradient may be wrong by.
fn tolerances(dtype: DType) -> [f64; 3] {
    let gates = if dtype == DType::BF16 { 2e-2 } else { gradient_tolerance(dtype) };
    [value_tolerance(dtype), gradient_tolerance(dtype), gates]
}

/// The largest relative RMS error among pairs of tensors, which must be of the same number and shapes; a NaN is the
/// largest.
fn largest_error(got: &[Tensor], want: &[Tensor]) -> atpm_core::Result<Option<f64>> {
    let shapes = |tensors: &[Tensor]| tensors.iter().map(|tensor| tensor.dims().to_vec()).collect::<Vec<_>>();
    if shapes(got) != shapes(want) {
        let problem = format!("it gives tensors of shapes {:?} in place of {:?}", shapes(got), shapes(want));
        return Err(atpm_core::Error::Argument { op: "doctor", problem });
    }
    let mut largest: Option<f64> = None;
    for (got, want) in got.iter().zip(want) {
        let error = relative_rms_error(got, want)?;
        largest = Some(
            largest.map_or(error, |so_far| if error > so_far || error.is_nan() { error } else { so_far }),
        );
    }
    Ok(largest)
}

impl Report {
    fn render(&self) -> String {
        let kind = if self.emulated { " (emulated kernels)" } else { "" };
        let other = if self.compared_with == "cpu" { "the CPU" } else { "their definitions" };
        let mut text = format!("ops on {}{kind}, compared with {other}: relative RMS errors\n", self.device);
        let _ = writeln!(text, "{:16}{:6}{:>14}{:>14}{:>14}", "", "", "value error", "gradients'", "gates'");
        let shown = |error: Option<f64>| error.map_or_else(|| "-".into(), |error| format!("{error:.1e}"));
        for row in &self.ops {
            let errors = [row.value_error, row.gradient_error, row.gate_error].map(shown);
            let [value, gradient, gate] = errors;
            let verdict = if row.right { "right" } else { "WRONG" };
            let problem = row.problem.as_deref().unwrap_or_default();
            let Row { op, dtype, .. } = row;
            let _ =
                writeln!(text, "{op:16}{dtype:6}{value:>14}{gradient:>14}{gate:>14}  {verdict} {problem}");
        }
        for (name, dtype) in [("f32", DType::F32), ("bf16", DType::BF16)] {
            if self.ops.iter().any(|row| row.dtype == name) {
                let [value, gradient, gate] = tolerances(dtype);
                let _ = writeln!(text, "at most, in {name:10}{value:>14.0e}{gradient:>14.0e}{gate:>14.0e}");
            }
        }
        let right = self.ops.iter().filter(|row| row.right).count();
        let _ = writeln!(text, "{right} of {} right", self.ops.len());
        text
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn every_op_is_right_on_this_processor() {
        for row in check("cpu").unwrap() {
            assert!(row.right, "{row:?}");
            assert!(row.value_error.is_some());
        }
    }

    // Each way to be wrong: another number, no number, another shape, an op that fails.
    #[test]
    fn what_differs_is_wrong() {
        let tensor = |values: &[f32]| Tensor::new(values, &Device::Cpu).unwrap();
        let outputs = |values: &[f32], gradients: &[f32]| Outputs {
            values: vec![tensor(values)],
            gradients: vec![tensor(gradients)],
        };
        let want = || outputs(&[1.0, 2.0], &[3.0]);
        let case = cases::all().unwrap().into_iter().find(|case| case.gates.is_none()).unwrap();
        let right = |got: Outputs| Row::of(&case, DType::F32, Ok((got, want()))).right;
        assert!(right(want()));
        assert!(!right(outputs(&[1.0, 2.001], &[3.0])));
        assert!(!right(outputs(&[1.0, 2.0], &[3.001])));
        assert!(!right(outputs(&[f32::NAN, 2.0], &[3.0])));
        assert!(!right(outputs(&[1.0], &[3.0])));
        assert!(!right(Outputs::default()));
        let failure = atpm_core::Error::Cuda { action: "launching x".into(), problem: "lost".into() };
        let row = Row::of(&case, DType::F32, Err(failure));
        assert!(!row.right && row.problem.unwrap().contains("launching x"));
        // What bf16 may lose is not what f32 may, and the gates' gradient may lose more than another one.
        let rounded = |got: Outputs| Row::of(&case, DType::BF16, Ok((got, want()))).right;
        assert!(rounded(outputs(&[1.0, 2.001], &[3.02])) && !rounded(outputs(&[1.0, 2.1], &[3.0])));
        let mixer = cases::all().unwrap().into_iter().find(|case| case.gates == Some(1)).unwrap();
        let two = |first: f32, gates: f32| Outputs {
            values: Vec::new(),
            gradients: vec![tensor(&[first]), tensor(&[gates])],
        };
        let rounded = |got: Outputs| Row::of(&mixer, DType::BF16, Ok((got, two(1.0, 1.0)))).right;
        assert!(rounded(two(1.0, 1.015)) && !rounded(two(1.015, 1.0)) && !rounded(two(1.0, 1.03)));
    }
}
