//! Pictures of made-up runs.

use std::fmt::Write as _;

use super::axis::{LossAxis, Span, labels, short, ticks};
use super::figure::PALETTE;
use super::heat_map::{HeatMaps, Map};
use super::lines::{Line, Lines};
use super::trace::Point;
use super::*;

/// A fall from about 12.6 to about 3.5 with fixed noise, one record a step, validated every hundred.
fn records(steps: u32, seed: u32) -> String {
    let mut noise = seed;
    let mut lines = String::new();
    for step in 1..=steps {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let wobble = f64::from(noise >> 8) / f64::from(1u32 << 24) - 0.5;
        let n = f64::from(step);
        let line = 2.9 + 6.1 * (-n / 40.0).exp() + 4.0 / (1.0 + n / 30.0).sqrt() - f64::from(seed) * 0.05;
        let loss = line + 0.25 * wobble;
        let tokens = u64::from(step) * 4096;
        let nats = line + 0.04;
        let eval = if step % 100 == 0 { format!(r#","eval":{{"loss":{nats}}}"#) } else { String::new() };
        writeln!(lines, r#"{{"step":{step},"loss":{loss},"tokens":{tokens}{eval}}}"#).unwrap();
    }
    lines
}

/// Plain records of these steps and losses.
fn lines(points: impl Iterator<Item = (u32, f64)>) -> String {
    let records = points.map(|(step, loss)| format!(r#"{{"step":{step},"loss":{loss}}}"#));
    records.collect::<Vec<_>>().join("\n")
}

/// A folder with runs of these names and metrics.
fn folder(runs: &[(&str, &str)]) -> (tempfile::TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let paths = runs.iter().map(|(name, metrics)| {
        let run = folder.path().join(name);
        std::fs::create_dir(&run).unwrap();
        std::fs::write(run.join("metrics.jsonl"), metrics).unwrap();
        run
    });
    let paths = paths.collect();
    (folder, paths)
}

/// The two files that [`write`] makes of these runs.
fn picture(runs: &[(&str, &str)]) -> (String, Vec<u8>) {
    let (folder, paths) = folder(runs);
    let (svg, png) = (folder.path().join("loss.svg"), folder.path().join("loss.png"));
    write(&paths, &Options::default(), &svg, &png).unwrap();
    (std::fs::read_to_string(svg).unwrap(), std::fs::read(png).unwrap())
}

fn parse(text: &str) -> Trace {
    Trace::parse("run", text).unwrap()
}

#[test]
fn the_axis_breaks_between_fall_and_convergence() {
    let trace = parse(&records(1000, 0));
    let LossAxis::Broken { upper, lower } = LossAxis::place(&[(&trace, trace.smoothed(0.98))]) else {
        panic!("a falling loss breaks the axis");
    };
    assert_eq!(upper.low, lower.high, "the two scales meet");
    assert!(upper.high >= 12.6 && lower.low < 3.6, "the whole trace is inside: {upper:?} {lower:?}");
    assert!(lower.holds(parse(&records(1000, 0)).points[150].loss.unwrap()), "convergence lies below");
    assert!(!lower.holds(8.0), "the early fall lies above");
}

#[test]
fn a_level_or_short_trace_keeps_one_scale() {
    let level = |steps: u32| lines((1..=steps).map(|step| (step, 2.5)));
    for text in [level(1), level(500), records(8, 0)] {
        let trace = parse(&text);
        let axis = LossAxis::place(&[(&trace, trace.smoothed(0.98))]);
        let LossAxis::Whole(span) = axis else { panic!("{axis:?}") };
        assert!(span.length() > 0.0 && span.holds(trace.points[0].loss.unwrap()));
    }
}

#[test]
fn every_odd_run_makes_a_picture_without_bad_numbers() {
    let nothing_finite = "{\"step\":1,\"loss\":null}\n{\"step\":2,\"loss\":null}\n";
    let only_validation = "{\"step\":7,\"eval\":{\"loss\":3.0}}\n";
    let one_spike = records(300, 1).replace("\"step\":200,\"loss\":", "\"step\":200,\"loss\":4");
    for text in ["{\"step\":1,\"loss\":0.0}\n", nothing_finite, only_validation, &one_spike] {
        let (svg, png) = picture(&[("run", text)]);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert!(!png.is_empty());
    }
}

#[test]
fn a_step_without_loss_is_a_gap_in_both_lines() {
    let text = "{\"step\":1,\"loss\":3.0}\n{\"step\":2,\"loss\":3.0}\n{\"step\":3,\"skipped\":\"non_finite\"}\n\
                {\"step\":4,\"loss\":9.0,\"skipped\":\"non_finite\"}\n{\"step\":5,\"loss\":3.0}\n{\"step\":6,\"loss\":3.0}\n";
    let trace = parse(text);
    let gaps = [false, false, true, true, false, false];
    for points in [trace.points.clone(), trace.smoothed(0.9)] {
        assert_eq!(points.iter().map(|point| point.loss.is_none()).collect::<Vec<_>>(), gaps);
    }
    assert!(trace.smoothed(0.9).iter().filter_map(|p| p.loss).all(|loss| (loss - 3.0).abs() < 1e-12));
    assert_eq!(trace.summary(0.9).gaps, 2);
    let (svg, _) = picture(&[("run", text)]);
    assert_eq!(svg.matches("stroke-width=\"2.2\"").count(), 2, "two pieces of the smoothed line");
}

#[test]
fn a_resumed_run_replaces_what_it_trains_again() {
    // O1: after a resume from an older step, the overlap must neither vanish nor appear twice.
    let text = "{\"step\":1,\"loss\":5.0}\n{\"step\":2,\"loss\":4.0}\n{\"step\":3,\"loss\":9.0,\"eval\":{\"loss\":9.0}}\n\
                {\"step\":2,\"loss\":4.0,\"resumed_from\":1}\n{\"step\":3,\"loss\":3.0}\n";
    let trace = parse(text);
    let losses: Vec<_> = trace.points.iter().map(|point| (point.step, point.loss.unwrap())).collect();
    assert_eq!(losses, [(1, 5.0), (2, 4.0), (3, 3.0)]);
    assert!(trace.validation.is_empty());
}

#[test]
fn a_cut_last_line_is_passed_over_and_any_other_bad_line_is_named() {
    let cut = format!("{}{{\"step\":4,\"lo", records(3, 0));
    assert_eq!(parse(&cut).points.len(), 3);
    let (line, _) = Trace::parse("run", "{\"step\":1,\"loss\":1.0}\nnonsense\n").unwrap_err();
    assert_eq!(line, 2);
    let (line, problem) = Trace::parse("run", "{\"loss\":1.0}\n").unwrap_err();
    assert_eq!((line, problem.as_str()), (1, "the record has no `step`"));
}

#[test]
fn mistakes_are_told_apart_and_write_nothing() {
    let (folder, runs) = folder(&[("empty", ""), ("good", &records(3, 0))]);
    let missing = folder.path().join("missing");
    let out = (folder.path().join("loss.svg"), folder.path().join("loss.png"));
    let cases = [
        (vec![missing], 0.9, "missing: no metrics to plot"),
        (vec![runs[0].clone()], 0.9, "it holds no record"),
        (vec![runs[1].clone(); 9], 0.9, "9 runs given"),
        (vec![runs[1].clone()], 1.0, "outside 0 ≤ weight < 1"),
        (vec![runs[1].clone()], f64::NAN, "outside 0 ≤ weight < 1"),
    ];
    for (runs, smoothing, expected) in cases {
        let error = write(&runs, &Options { title: None, smoothing }, &out.0, &out.1).unwrap_err();
        assert!(error.is_users() && error.to_string().contains(expected), "{error}");
    }
    assert!(!out.0.exists() && !out.1.exists());
}

#[test]
fn names_are_escaped() {
    let (svg, _) = picture(&[("a<b>&\"c'\u{1}", &records(50, 0))]);
    assert!(svg.contains("a&lt;b&gt;&amp;&quot;c&apos;\u{fffd}"));
    assert!(!svg.contains("a<b>"));
}

#[test]
fn the_same_runs_give_the_same_bytes() {
    let (first, second) = (records(400, 1), records(300, 2));
    let runs = [("one", first.as_str()), ("two", second.as_str())];
    assert_eq!(picture(&runs), picture(&runs));
}

#[test]
fn the_png_has_twice_the_svgs_size_and_is_not_blank() {
    for (count, rows) in [(1, 1), (2, 2), (3, 2), (8, 4)] {
        let metrics: Vec<String> = (0..count).map(|seed| records(120, seed)).collect();
        let names: Vec<String> = (0..count).map(|run| format!("run-{run}")).collect();
        let runs: Vec<_> = names.iter().map(String::as_str).zip(metrics.iter().map(String::as_str)).collect();
        let (svg, png) = picture(&runs);
        let pixels = resvg::tiny_skia::Pixmap::decode_png(&png).unwrap();
        let height = 566 + 24 * rows;
        assert!(svg.contains(&format!("width=\"900\" height=\"{height}\"")), "{}", &svg[..200]);
        assert_eq!((pixels.width(), pixels.height()), (1800, 2 * height));
        let blue =
            |pixel: &resvg::tiny_skia::PremultipliedColorU8| pixel.blue() > pixel.red().saturating_add(90);
        assert!(
            pixels.pixels().iter().filter(|pixel| blue(pixel)).count() > 500,
            "the first run's line is there"
        );
    }
}

#[test]
fn smoothing_keeps_a_straight_line_and_does_not_lag() {
    let line = lines((0..400).map(|step| (step, f64::from(400 - step))));
    let smoothed = parse(&line).smoothed(0.9);
    for (step, point) in smoothed.iter().enumerate().take(280).skip(180) {
        assert!((point.loss.unwrap() - (400 - step) as f64).abs() < 0.01, "step {step}: {point:?}");
    }
    let raw = parse(&line).smoothed(0.0);
    assert_eq!(raw, parse(&line).points, "weight 0 is the raw trace");
}

#[test]
fn ticks_are_round_and_labels_tell_them_apart() {
    for (low, high, expected) in [
        (0.0, 10.0, vec!["0", "2", "4", "6", "8", "10"]),
        (3.41, 3.62, vec!["3.45", "3.50", "3.55", "3.60"]),
        (-1.0, 1.0, vec!["-1.0", "-0.5", "0", "0.5", "1.0"]),
    ] {
        assert_eq!(labels(&ticks(Span { low, high }, 5)), expected, "{low} … {high}");
    }
    let counts = [(0.0, "0"), (950.0, "950"), (2500.0, "2.5k"), (12_300_000.0, "12.3M"), (2e9, "2B")];
    for (count, text) in counts {
        assert_eq!(short(count), text);
    }
    assert_eq!(Span::of([]), None);
    assert_eq!(Span::of([2.0]).unwrap().padded(0.1), Span { low: 1.8, high: 2.2 });
}

#[test]
fn a_long_run_stays_a_small_file() {
    let trace: Vec<Point> = parse(&records(20_000, 3)).points;
    assert_eq!(trace.len(), 20_000);
    let (svg, _) = picture(&[("long", &records(20_000, 3))]);
    assert!(svg.len() < 200_000, "{} bytes", svg.len());
}

#[test]
fn a_heat_map_draws_what_is_not_nothing_and_tells_signs_apart() {
    let values = vec![vec![0.0, 1.0], vec![-1.0, 0.001], vec![f32::NAN, 0.25]];
    let maps = vec![Map::new("weights <1>", "slot", values)];
    let picture = HeatMaps { title: "heads".into(), across: "step".into(), maps }.draw();
    let cells = |color: &str| picture.matches(&format!("fill=\"{color}\"")).count();
    assert_eq!((cells("#0b3c6f"), cells("#8c1d18")), (1, 1), "one full cell of each sign: {picture}");
    // Paper, two full cells and a quarter's; nothing for 0, for next to nothing, and for what is no number.
    assert_eq!(picture.matches("<rect").count(), 4);
    assert!(picture.contains("weights &lt;1&gt;") && !picture.contains("NaN"));
    let folder = tempfile::tempdir().unwrap();
    let (svg, png) = (folder.path().join("w.svg"), folder.path().join("w.png"));
    HeatMaps { title: "nothing".into(), across: "step".into(), maps: Vec::new() }.write(&svg, &png).unwrap();
    assert!(svg.is_file() && png.is_file());
}

#[test]
fn lines_are_placed_by_their_values() {
    let line = |name: &str, points: &[(f64, f64)]| Line { name: name.into(), points: points.to_vec() };
    let lines = vec![line("up", &[(0.0, 0.0), (10.0, 100.0)]), line("level", &[(0.0, 50.0), (10.0, 50.0)])];
    let (title, across, up) = ("t".into(), "length".into(), "%".into());
    let picture = Lines { title, across, up, mark: Some(5.0), lines }.draw();
    let (rising, level) = (places(&picture, PALETTE[0], 0), places(&picture, PALETTE[1], 0));
    assert!(rising[0].1 > level[0].1 && rising[1].1 < level[1].1, "{rising:?} {level:?}");
    assert_eq!(level[0].1, level[1].1);
    assert!(picture.contains("stroke-dasharray"), "the mark is there");
}

/// The points of the polyline of this colour, the `nth` in the picture.
fn places(picture: &str, color: &str, nth: usize) -> Vec<(f64, f64)> {
    let mark = format!("stroke=\"{color}\"");
    let line =
        picture.lines().filter(|line| line.contains("<polyline") && line.contains(&mark)).nth(nth).unwrap();
    let points = line.split("points=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    let place = |(x, y): (&str, &str)| (x.parse().unwrap(), y.parse().unwrap());
    points.split_whitespace().map(|point| place(point.split_once(',').unwrap())).collect()
}

// Panels of one grid can be compared: the same value stands at the same height in each, ten times as much as far above
// it everywhere, and what a logarithm cannot hold at the floor.
#[test]
fn small_multiples_share_their_axes() {
    let panel = |name: &str, lines: &[&[(f64, f64)]]| grid::Panel {
        name: name.into(),
        lines: lines.iter().map(|line| line.to_vec()).collect(),
    };
    let falling: &[_] = &[(100.0, 10.0), (200.0, 1.0), (300.0, 0.1)];
    let rest: &[_] = &[(100.0, 1.0), (200.0, f64::NAN), (300.0, 0.0)];
    let names = vec!["a".into(), "b".into()];
    let panels = vec![panel("one & two", &[falling, &[]]), panel("next", &[&[(100.0, 10.0)], rest])];
    let picture = grid::Grid { title: "t".into(), note: String::new(), names, panels }.draw();
    // The first line of a colour is the legend's.
    let (first, next, rest) =
        (places(&picture, PALETTE[0], 1), places(&picture, PALETTE[0], 2), places(&picture, PALETTE[1], 2));
    let close = |a: f64, b: f64| (a - b).abs() < 0.02;
    assert!(close(first[1].1 - first[0].1, first[2].1 - first[1].1), "{first:?}");
    assert!(close(next[0].1, first[0].1) && next[0].0 > first[2].0, "{next:?}");
    assert!(rest.len() == 2 && close(rest[0].1, first[1].1), "{rest:?}");
    assert!(close(rest[1].1 - rest[0].1, 3.0 * (first[1].1 - first[0].1)), "down to the floor: {rest:?}");
    assert!(picture.contains("one &amp; two") && picture.contains(">0.001<") && picture.contains(">10<"));
}
