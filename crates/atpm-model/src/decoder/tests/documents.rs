//! Documents packed into one row do not know of each other.

use super::*;

/// Lengths on both sides of a chunk of the mixer.
const A: usize = 70;
const B: usize = 61;

fn documents() -> (Vec<u32>, Vec<u32>) {
    (ids(1, A, 19, 2).remove(0), ids(1, B, 19, 3).remove(0))
}

fn pack(a: &[u32], b: &[u32]) -> (Vec<Vec<u32>>, Segments) {
    let row = [a, b].concat();
    let segments = Segments::from_starts(row.len(), vec![vec![0, a.len()]]).unwrap();
    (vec![row], segments)
}

fn alone(document: &[u32]) -> (Vec<Vec<u32>>, Segments) {
    (vec![document.to_vec()], Segments::from_starts(document.len(), vec![vec![0]]).unwrap())
}

// D26: separate and packed documents give the same loss and the same gradients.
#[test]
fn packed_gradients_are_the_sum_of_separate_ones() {
    let (a, b) = documents();
    for (preset, config) in presets() {
        let decoder = model(&config, DType::F64);
        let ((ids_a, alone_a), (ids_b, alone_b)) = (alone(&a), alone(&b));
        let (loss_a, of_a) = gradients(&decoder, &ids_a, &alone_a);
        let (loss_b, of_b) = gradients(&decoder, &ids_b, &alone_b);
        let (ids, segments) = pack(&a, &b);
        let (loss, of_both) = gradients(&decoder, &ids, &segments);
        assert!((sum(&loss) - sum(&loss_a) - sum(&loss_b)).abs() < 1e-9, "{preset}");
        for ((parameter, both), (a, b)) in
            decoder.parameters().iter().zip(&of_both).zip(of_a.iter().zip(&of_b))
        {
            let name = format!("{preset}: {}", parameter.name);
            atpm_core::testing::assert_close(&name, both, &(a + b).unwrap(), 1e-9);
        }
    }
}

// D26: what another document says changes no bit of this one's logits. The planted fault is a model that is not told
// where the document starts: whatever looks back in time then sees the one before.
#[test]
fn a_document_never_sees_the_one_before() {
    let (mut a, b) = documents();
    for (preset, config) in presets() {
        let decoder = model(&config, DType::F32);
        let logits = |a: &[u32], starts: &[usize]| {
            let segments = Segments::from_starts(A + B, vec![starts.to_vec()]).unwrap();
            decoder.logits(&rows(&[[a, &b].concat()]), &segments, None).unwrap()
        };
        let both = |a: &[u32]| [logits(a, &[0, A]), logits(a, &[0])];
        let [before, untold_before] = both(&a);
        a[A - 1] = (a[A - 1] + 1) % 19;
        let [after, untold_after] = both(&a);
        let part = |logits: &Tensor, start, len| logits.narrow(1, start, len).unwrap().contiguous().unwrap();
        atpm_core::testing::assert_same_bits(preset, &part(&after, A, B), &part(&before, A, B));
        assert_ne!(elements(&part(&after, 0, A)), elements(&part(&before, 0, A)), "{preset}");
        let leak = elements(&part(&untold_after, A, B)) != elements(&part(&untold_before, A, B));
        assert!(leak, "{preset}: the fault would not show");
    }
}

#[test]
fn a_batch_that_does_not_fit_is_refused() {
    let decoder = model(&tiny(), DType::F32);
    let (ids, segments) = alone(&[1, 2, 3]);
    let short = rows(&[vec![1, 2]]);
    for result in [
        decoder.evaluate(&short, &rows(&ids), &segments).map(drop),
        decoder.evaluate(&rows(&ids), &short, &segments).map(drop),
        decoder.logits(&short, &segments, None).map(drop),
        decoder.train_step_backward(&rows(&ids), &short, &segments, 1.0, 0.0).map(drop),
        decoder.prefill(&short, &segments, &mut decoder.decode_state(1).unwrap()).map(drop),
    ] {
        let message = result.unwrap_err().to_string();
        assert!(message.contains("[rows, tokens] = [1, 3]"), "{message}");
    }
    for (batch, tokens) in [(1, 0), (0, 3)] {
        let none = Tensor::zeros((batch, tokens), DType::U32, &Device::Cpu).unwrap();
        let mut state = decoder.decode_state(batch).unwrap();
        let nothing = Segments::continuous(batch, tokens);
        for result in [decoder.prefill(&none, &nothing, &mut state), decoder.evaluate(&none, &none, &nothing)]
        {
            let message = result.unwrap_err().to_string();
            assert!(message.contains("ids are empty"), "{message}");
        }
    }
    // D23: an id outside the vocabulary is an error that names it.
    let message = decoder.logits(&rows(&[vec![1, 19, 2]]), &segments, None).unwrap_err().to_string();
    assert!(message.contains("19"), "{message}");
}
