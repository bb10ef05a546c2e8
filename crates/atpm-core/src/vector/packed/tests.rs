//! Packed products against plain sums: every layout of the operands, every kind of edge.

use super::*;

/// A few deterministic values in `[-1, 1)`.
fn values(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// Nearest bf16, ties to even.
fn rounded(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff_0000)
}

/// Compares one shape with f64 sums of operands passed through `round`.
fn check(kernel: &Kernel, round: fn(f32) -> f32, (m, n, k): (usize, usize, usize), layout: usize, keep: f32) {
    let (a, b) = (values(m * k, 1), values(k * n, 2));
    let (transposed_a, transposed_b) = (layout & 1 == 1, layout & 2 == 2);
    let a_view = if transposed_a { Mat::dense(&a, k, m).t() } else { Mat::dense(&a, m, k) };
    let b_view = if transposed_b { Mat::dense(&b, n, k).t() } else { Mat::dense(&b, k, n) };
    let stride = n + 3;
    let before = if keep == 0.0 { f32::NAN } else { 0.5 };
    let mut c = vec![before; m * stride];
    product(kernel, &mut MatMut::rows(&mut c, m, n, stride), keep, a_view, b_view);
    for i in 0..m {
        for j in 0..n {
            let at =
                |i: usize, p: usize| f64::from(round(if transposed_a { a[p * m + i] } else { a[i * k + p] }));
            let bt =
                |p: usize, j: usize| f64::from(round(if transposed_b { b[j * k + p] } else { b[p * n + j] }));
            let kept = if keep == 0.0 { 0.0 } else { f64::from(keep * before) };
            let expected: f64 = kept + (0..k).map(|p| at(i, p) * bt(p, j)).sum::<f64>();
            let error = (f64::from(c[i * stride + j]) - expected).abs();
            let bound = 1e-6 * (k as f64).sqrt().max(1.0);
            assert!(error < bound, "({m},{n},{k}) layout {layout}, element ({i},{j}): error {error:e}");
        }
        for beyond in n..stride {
            assert_eq!(
                c[i * stride + beyond].to_bits(),
                before.to_bits(),
                "nothing beyond the columns is written"
            );
        }
    }
}

#[test]
fn every_layout_and_edge() {
    // Tiles of 12, 4 and 1 rows; strips of 32 and less; words that end inside a vector and inside a pair.
    let shapes = [
        (1, 1, 1),
        (12, 32, 16),
        (17, 33, 15),
        (97, 70, 31),
        (5, 16, 64),
        (29, 129, 1),
        (13, 40, 1030),
        (9, 17, 20_000),
    ];
    let kernels = [(single(), (|x| x) as fn(f32) -> f32), (bf16(), rounded)];
    for (kernel, round) in kernels.into_iter().filter_map(|(kernel, round)| Some((kernel?, round))) {
        for shape in shapes {
            for layout in 0..4 {
                check(kernel, round, shape, layout, 0.0);
                check(kernel, round, shape, layout, 2.0);
            }
        }
    }
}

#[test]
fn no_depth_leaves_what_is_kept() {
    let Some(kernel) = single() else { return };
    let mut c = [3.0f32; 4];
    product(kernel, &mut MatMut::dense(&mut c, 2, 2), 0.5, Mat::dense(&[], 2, 0), Mat::dense(&[], 0, 2));
    assert_eq!(c, [1.5; 4]);
}

#[test]
fn threads_change_no_bit() {
    // The second has sums of its own for runs of blocks.
    for (m, n, k) in [(130, 300, 700), (70, 40, 9000)] {
        threads_change_no_bit_of(m, n, k);
    }
}

fn threads_change_no_bit_of(m: usize, n: usize, k: usize) {
    let (a, b) = (values(m * k, 3), values(k * n, 4));
    for kernel in [single(), bf16()].into_iter().flatten() {
        let with = |threads: usize| {
            let mut c = vec![0.0f32; m * n];
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            let (a, b) = (Mat::dense(&a, m, k), Mat::dense(&b, k, n));
            pool.install(|| product(kernel, &mut MatMut::dense(&mut c, m, n), 0.0, a, b));
            c
        };
        assert_eq!(with(1), with(3));
    }
}

#[test]
fn not_a_number_and_infinity_pass_through_bf16() {
    let Some(kernel) = bf16() else { return };
    let (a, b) = ([f32::NAN, 1.0, f32::INFINITY, 1.0], [1.0f32, 0.0, 0.0, 1.0]);
    let mut c = [0.0f32; 4];
    product(kernel, &mut MatMut::dense(&mut c, 2, 2), 0.0, Mat::dense(&a, 2, 2), Mat::dense(&b, 2, 2));
    assert!(c[0].is_nan() && c[2].is_infinite(), "{c:?}");
}
