//! What is saved comes back, bit for bit, into tensors that correspond one to one.

use candle_core::{DType, Device, Tensor};

use super::super::{Error, load};
use super::{Model, state};

type Shapes<'a> = &'a [(&'a str, &'a [usize])];

// S8: parameters and moments come back with the same bits, as f32 all the way.
#[test]
fn every_bit_comes_back() {
    let run = tempfile::tempdir().unwrap();
    let saved = Model::new(1);
    // Bits that a detour through another format would lose.
    atpm_core::overwrite_f32(
        &saved.m[2],
        &[-0.0, 1e-45, f32::MIN_POSITIVE, f32::MAX, 1e-6, 1.0, 0.1, -1e-30],
    )
    .unwrap();
    let path = saved.save(run.path(), 12).unwrap();
    assert_eq!(path, run.path().join("checkpoints/step-00000012"));

    let restored = Model::new(2);
    assert_ne!(restored.hash(), saved.hash());
    let clone_before = restored.parameters[0].value.clone();
    let loaded = load(&path).unwrap();
    loaded.restore(&restored.parameters, &restored.m, &restored.v).unwrap();
    assert_eq!(restored.hash(), saved.hash());
    assert_eq!(loaded.state, state(12));
    assert_eq!(
        clone_before.to_vec2::<f32>().unwrap(),
        saved.parameters[0].value.to_vec2::<f32>().unwrap(),
        "clones of a parameter see the restored values"
    );
}

// S8: an independent reader finds the documented names, all f32.
#[test]
fn files_hold_the_documented_names_and_dtypes() {
    let run = tempfile::tempdir().unwrap();
    let model = Model::new(1);
    let path = model.save(run.path(), 1).unwrap();
    for (file, prefixes) in [("model.safetensors", vec![""]), ("optimizer.safetensors", vec!["m.", "v."])] {
        let bytes = std::fs::read(path.join(file)).unwrap();
        let read = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let mut expected: Vec<String> = prefixes
            .iter()
            .flat_map(|prefix| model.parameters.iter().map(move |p| format!("{prefix}{}", p.name)))
            .collect();
        let mut names: Vec<String> = read.names().into_iter().map(str::to_string).collect();
        expected.sort();
        names.sort();
        assert_eq!(names, expected, "{file}");
        assert!(read.tensors().iter().all(|(_, view)| view.dtype() == safetensors::Dtype::F32), "{file}");
    }
}

// S11: unknown and missing keys are errors, and so are other shapes; nothing is overwritten then.
#[test]
fn tensors_that_do_not_correspond_are_named() {
    let run = tempfile::tempdir().unwrap();
    let saved: Shapes<'_> = &[("a.weight", &[4, 2]), ("b.weight", &[3])];
    let path = Model::with_shapes(1, saved).save(run.path(), 3).unwrap();
    let loaded = load(&path).unwrap();
    let table: [(Shapes<'_>, &str); 4] = [
        (&[("a.weight", &[4, 2])], "`b.weight` is unknown to the model"),
        (&[("a.weight", &[4, 2]), ("b.weight", &[3]), ("c.weight", &[1])], "`c.weight` is missing"),
        (&[("a.weight", &[4, 2]), ("b.weight", &[4])], "`b.weight` has shape [3], the model needs [4]"),
        (&[("a.weight", &[2, 4]), ("b.weight", &[3])], "`a.weight` has shape [4, 2], the model needs [2, 4]"),
    ];
    for (shapes, expected) in table {
        let model = Model::with_shapes(2, shapes);
        let before = model.hash();
        let error = loaded.restore(&model.parameters, &model.m, &model.v).unwrap_err();
        assert!(error.is_user_mistake());
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(model.hash(), before, "nothing is overwritten unless everything fits");
    }
}

// S8: another dtype is refused on both ways.
#[test]
fn other_dtypes_are_refused() {
    let run = tempfile::tempdir().unwrap();
    let mut model = Model::new(1);
    let path = model.save(run.path(), 1).unwrap();
    for dtype in [DType::F64, DType::BF16] {
        model.m[0] = Tensor::zeros((16, 8), dtype, &Device::Cpu).unwrap();
        let error = model.save(run.path(), 2).unwrap_err();
        assert!(matches!(&error, Error::Refused { name, .. } if name == "m.embedding.weight"), "{error}");
        let error = load(&path).unwrap().restore(&model.parameters, &model.m, &model.v).unwrap_err();
        assert!(error.to_string().contains("only f32 is restored"), "{error}");
    }
}

#[test]
fn moments_that_are_not_the_parameters_are_refused() {
    let run = tempfile::tempdir().unwrap();
    let mut model = Model::new(1);
    model.v.pop();
    let error = model.save(run.path(), 1).unwrap_err();
    assert!(error.to_string().contains("4 parameters come with 4 first and 3 second moments"), "{error}");
    let mut model = Model::new(1);
    model.v.swap(0, 2);
    let error = model.save(run.path(), 1).unwrap_err();
    assert!(error.to_string().contains("its moment has shape"), "{error}");
}

// T12: weights that are not finite are never saved; the last good checkpoint stays.
#[test]
fn weights_that_are_not_finite_are_not_saved() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let run = tempfile::tempdir().unwrap();
        let model = Model::new(1);
        let good = model.save(run.path(), 4).unwrap();
        let mut values = atpm_core::read_f32(&model.parameters[2].value).unwrap();
        values[5] = bad;
        atpm_core::overwrite_f32(&model.parameters[2].value, &values).unwrap();
        let error = model.save(run.path(), 5).unwrap_err();
        assert!(error.to_string().contains("`norm.weight` is not saved: element 5"), "{error}");
        assert_eq!(super::listing(run.path()), ["step-00000004"], "no temporary folder stays");
        load(&good).unwrap();
    }
}
