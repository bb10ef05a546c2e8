//! A Neural Turing machine as a stand-alone executor: an agent's notebook that is run step by step, with its state in the
//! agent's hands.
//!
//! A small machine is trained to copy (seconds), read back from its checkpoint, and then used from outside: three vectors are
//! dictated, the state is kept, the list is read back; the kept state is put back, and the same list comes again, as often as
//! the agent likes. In between one can look at the slots and at where the heads are.
//!
//! ```text
//! cargo run --release -p atpm-train --example ntm_executor
//! ```

use std::io::Write;
use std::path::Path;

use atpm_model::ntm::Executor;
use atpm_train::run::folder::Resume;
use atpm_train::suite::ntm::settings::Settings;
use atpm_train::suite::ntm::{model, train};
use atpm_train::training::signals::StopFlag;

const BITS: usize = 8;
type Vector = [f32; BITS];

fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut notebook = notebook(folder.path())?;
    let mut out = std::io::stdout();
    let list = dictation();
    dictate(&mut notebook, &list)?;
    for (slot, numbers) in (0..4).map(|slot| (slot, notebook.slot(slot))) {
        let size = numbers.iter().map(|x| x * x).sum::<f32>().sqrt();
        writeln!(out, "slot {slot} holds a vector of length {size:.2}")?;
    }
    let kept = notebook.state().to_vec();
    for time in ["once", "again, from the state that was kept"] {
        notebook.set_state(&kept)?;
        let answer = read_back(&mut notebook, list.len())?;
        writeln!(
            out,
            "read back {time}: {} of {} bits right",
            right_bits(&answer, &list),
            BITS * list.len()
        )?;
    }
    Ok(())
}

/// A machine that has learned to copy three to five vectors, from its run folder.
fn notebook(folder: &Path) -> anyhow::Result<Executor> {
    let keys = [
        "seed=1",
        "train.least=3",
        "train.most=5",
        "train.steps=1000",
        "train.lr=1e-2",
        "eval.every=0",
        "model.hidden=64",
        "model.slots=16",
        "model.width=16",
    ];
    let mut settings = Settings::load(Some("copy"), None, &keys.map(String::from))?;
    settings.run_dir = folder.join("run");
    train::train(&settings, &Resume::Never, &StopFlag::default())?;
    let (machine, _) = model::open(&settings.run_dir)?;
    Ok(Executor::new(machine)?)
}

fn dictation() -> [Vector; 3] {
    [
        [1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0],
        [0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0],
        [1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0],
    ]
}

/// Shows the vectors and the end mark.
fn dictate(notebook: &mut Executor, list: &[Vector]) -> anyhow::Result<()> {
    notebook.restart();
    for vector in list {
        notebook.step(&[&vector[..], &[0.0]].concat())?;
    }
    notebook.step(&[&[0.0; BITS][..], &[1.0]].concat())?;
    Ok(())
}

/// Asks for `count` vectors: the machine is shown nothing, and its logits are rounded.
fn read_back(notebook: &mut Executor, count: usize) -> anyhow::Result<Vec<Vec<f32>>> {
    (0..count)
        .map(|_| {
            let logits = notebook.step(&[0.0; BITS + 1])?;
            Ok(logits.iter().map(|&y| f32::from(u8::from(y > 0.0))).collect())
        })
        .collect()
}

fn right_bits(answer: &[Vec<f32>], list: &[Vector]) -> usize {
    answer.iter().flatten().zip(list.iter().flatten()).filter(|(a, b)| a == b).count()
}

#[test]
fn a_kept_state_answers_again_and_differs_from_an_empty_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut notebook = notebook(folder.path()).unwrap();
    let list = dictation();
    dictate(&mut notebook, &list).unwrap();
    let kept = notebook.state().to_vec();
    let first = read_back(&mut notebook, 3).unwrap();
    assert!(right_bits(&first, &list) >= 23, "{first:?}");
    notebook.set_state(&kept).unwrap();
    assert_eq!(read_back(&mut notebook, 3).unwrap(), first);
    notebook.restart();
    assert_ne!(read_back(&mut notebook, 3).unwrap(), first, "an empty memory has nothing to say");
}
