//! Answers found from what is read alone, and what a stream promises.

use std::collections::BTreeSet;

use super::priority_sort::asked;
use super::repeat_copy::shown;
use super::*;

/// Steps of a row, as vectors.
type Lines = Vec<Vec<f32>>;

/// The rows of a batch: inputs, targets, answers.
fn rows(task: VectorTask, batch: &VectorBatch) -> Vec<(Lines, Lines, Vec<bool>)> {
    let lines = |all: &[f32], width: usize, row: usize| -> Lines {
        all.chunks(width).skip(row * batch.steps).take(batch.steps).map(<[f32]>::to_vec).collect()
    };
    (0..batch.rows)
        .map(|row| {
            (
                lines(&batch.inputs, task.inputs(), row),
                lines(&batch.targets, task.outputs(), row),
                batch.answers[row * batch.steps..(row + 1) * batch.steps].to_vec(),
            )
        })
        .collect()
}

/// The answer to what is read, by brute force.
fn solve(task: VectorTask, inputs: &[Vec<f32>]) -> Lines {
    let bits = |line: &[f32], n: usize| line[..n].to_vec();
    match task {
        VectorTask::Copy => {
            let end = inputs.iter().position(|line| line[8] == 1.0).unwrap();
            inputs[..end].iter().map(|line| bits(line, 8)).collect()
        }
        VectorTask::RepeatCopy => {
            let end = inputs.iter().position(|line| line[8] == 1.0).unwrap();
            let repeats = (1..=10).find(|&n| shown(n) == inputs[end][9]).unwrap();
            let line = |line: &Vec<f32>| [bits(line, 8), vec![0.0]].concat();
            let mut answer: Vec<_> = (0..repeats).flat_map(|_| inputs[..end].iter().map(line)).collect();
            answer.push([vec![0.0; 8], vec![1.0]].concat());
            answer
        }
        VectorTask::AssociativeRecall => {
            let query = inputs.iter().position(|line| line[7] == 1.0).unwrap();
            let items: Vec<Lines> = inputs[..query]
                .chunks(4)
                .map(|item| {
                    assert_eq!(item[0][6], 1.0, "an item begins with its mark");
                    item[1..].iter().map(|line| bits(line, 6)).collect()
                })
                .collect();
            let asked: Vec<_> = inputs[query + 1..query + 4].iter().map(|line| bits(line, 6)).collect();
            assert_eq!(inputs[query + 4][7], 1.0, "the question ends with its mark");
            let at = items.iter().position(|item| *item == asked).unwrap();
            items[at + 1].clone()
        }
        VectorTask::PrioritySort => {
            let end = inputs.iter().position(|line| line[9] == 1.0).unwrap();
            let mut list: Vec<_> = inputs[..end].to_vec();
            list.sort_by(|a, b| b[8].total_cmp(&a[8]));
            list[..asked(end)].iter().map(|line| bits(line, 8)).collect()
        }
    }
}

fn stream(task: VectorTask, split: Split, seed: u64) -> VectorStream {
    VectorStream { task, split, seed, rows: 5 }
}

#[test]
fn the_answers_are_those_that_the_inputs_have() {
    for task in VectorTask::ALL {
        for index in 0..20 {
            let batch = stream(task, Split::Train, 3).batch(index, task.sizes());
            for (inputs, targets, answers) in rows(task, &batch) {
                let counted: Vec<_> = targets
                    .iter()
                    .zip(&answers)
                    .filter(|(_, answer)| **answer)
                    .map(|(line, _)| line.clone())
                    .collect();
                assert_eq!(counted, solve(task, &inputs), "{}", task.name());
                for ((input, target), answer) in inputs.iter().zip(&targets).zip(&answers) {
                    let shown = input.iter().any(|&x| x != 0.0);
                    assert!(!(*answer && shown), "{}: nothing is shown where an answer is due", task.name());
                    assert!(*answer || target.iter().all(|&x| x == 0.0));
                }
            }
        }
    }
}

#[test]
fn sizes_are_drawn_for_each_batch_and_reach_both_ends() {
    for task in VectorTask::ALL {
        let (least, most) = task.sizes();
        let sizes: BTreeSet<usize> =
            (0..400).map(|index| stream(task, Split::Train, 0).batch(index, (least, most)).size).collect();
        assert_eq!(sizes, (least..=most).collect(), "{}", task.name());
        // Both limits are sizes that can be drawn, the largest in little time.
        let (least, most) = task.limits();
        for size in [least, most] {
            let fixed = VectorStream { rows: 1, ..stream(task, Split::Train, 0) }.batch(0, (size, size));
            assert!(fixed.answers.iter().any(|&answer| answer), "{}: {size} asks something", task.name());
        }
    }
}

#[test]
fn a_batch_is_a_function_of_its_name_and_no_row_is_in_two_splits() {
    let sizes = |task: VectorTask| (task.sizes().1, task.sizes().1);
    for task in VectorTask::ALL {
        let mut seen: Vec<BTreeSet<Vec<u32>>> = Vec::new();
        for split in [Split::Train, Split::Validation, Split::Iid] {
            let mut own = BTreeSet::new();
            for seed in 0..4 {
                let batch = stream(task, split, seed).batch(7, sizes(task));
                assert_eq!(batch, stream(task, split, seed).batch(7, sizes(task)));
                assert_ne!(batch, stream(task, split, seed).batch(8, sizes(task)));
                for (inputs, ..) in rows(task, &batch) {
                    own.insert(inputs.concat().iter().map(|x| x.to_bits()).collect());
                }
            }
            assert!(seen.iter().all(|other| other.is_disjoint(&own)), "{}", task.name());
            seen.push(own);
        }
    }
    // Copies of one vector: 256 of them, and every one has its split.
    let owners: Vec<BTreeSet<Vec<u32>>> = [Split::Train, Split::Validation, Split::Iid]
        .map(|split| {
            let batches = (0..200).map(|index| stream(VectorTask::Copy, split, index).batch(index, (1, 1)));
            let rows = batches.flat_map(|batch| rows(VectorTask::Copy, &batch));
            rows.map(|(inputs, ..)| inputs.concat().iter().map(|x| x.to_bits()).collect()).collect()
        })
        .into();
    assert!(
        owners[0].is_disjoint(&owners[1])
            && owners[0].is_disjoint(&owners[2])
            && owners[1].is_disjoint(&owners[2])
    );
}

#[test]
fn four_fifths_are_asked_for() {
    assert_eq!([1, 2, 5, 10, 20].map(asked), [1, 1, 4, 8, 16]);
}
