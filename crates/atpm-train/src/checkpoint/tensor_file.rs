//! Safetensors files, one tensor at a time: neither writing nor reading holds a second copy of the model.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use candle_core::{DType, Tensor};
use half::bf16;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

use super::digest::{Digest, DigestWriter};
use super::{Error, Result};

/// The format's own limit on a header.
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// Elements converted to bytes at a time.
const BLOCK: usize = 1 << 16;

/// How f32 tensors are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// As they are.
    F32,
    /// Rounded to the nearest bf16, ties to even.
    Bf16,
}

impl Encoding {
    fn dtype(self) -> Dtype {
        match self {
            Self::F32 => Dtype::F32,
            Self::Bf16 => Dtype::BF16,
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }

    fn append(self, value: f32, bytes: &mut Vec<u8>) {
        match self {
            Self::F32 => bytes.extend(value.to_le_bytes()),
            Self::Bf16 => bytes.extend(bf16::from_f32(value).to_le_bytes()),
        }
    }

    /// What a value becomes by being stored.
    pub(crate) fn rounded(self, value: f32) -> f32 {
        match self {
            Self::F32 => value,
            Self::Bf16 => bf16::from_f32(value).to_f32(),
        }
    }
}

/// Writes f32 tensors under their names, in the given order, and one note (key, value) into the header.
///
/// # Errors
/// A tensor that is not f32 or has an element that is not finite, a name given twice, or whatever the file
/// system refuses.
pub(crate) fn write(
    path: &Path,
    tensors: &[(String, &Tensor)],
    encoding: Encoding,
    note: (&str, &str),
) -> Result<Digest> {
    let header = header(path, tensors, encoding, note)?;
    let mut file = DigestWriter::create(path)?;
    file.write(&(header.len() as u64).to_le_bytes())?;
    file.write(&header)?;
    let mut bytes = Vec::with_capacity(BLOCK * encoding.bytes());
    for (name, tensor) in tensors {
        let values = atpm_core::read_f32(tensor)?;
        if let Some(at) = values.iter().position(|&value| !encoding.rounded(value).is_finite()) {
            let reason = format!("element {at} is {}", values[at]);
            return Err(Error::Refused { name: name.clone(), reason });
        }
        for block in values.chunks(BLOCK) {
            bytes.clear();
            for &value in block {
                encoding.append(value, &mut bytes);
            }
            file.write(&bytes)?;
        }
    }
    file.finish()
}

fn header(
    path: &Path,
    tensors: &[(String, &Tensor)],
    encoding: Encoding,
    note: (&str, &str),
) -> Result<Vec<u8>> {
    let mut names = BTreeSet::new();
    let mut infos = Vec::with_capacity(tensors.len());
    let mut offset = 0;
    for (name, tensor) in tensors {
        if tensor.dtype() != DType::F32 {
            let reason = format!("its dtype is {:?}, and only f32 is kept", tensor.dtype());
            return Err(Error::Refused { name: name.clone(), reason });
        }
        if !names.insert(name) {
            return Err(Error::Refused { name: name.clone(), reason: "its name is used twice".into() });
        }
        let end = offset + tensor.elem_count() * encoding.bytes();
        let info = TensorInfo {
            dtype: encoding.dtype(),
            shape: tensor.dims().to_vec(),
            data_offsets: (offset, end),
        };
        infos.push((name.clone(), info));
        offset = end;
    }
    let notes = HashMap::from([(note.0.to_string(), note.1.to_string())]);
    let metadata =
        Metadata::new(Some(notes), infos).map_err(|error| Error::format(path, error.to_string()))?;
    let mut header = serde_json::to_vec(&metadata).map_err(|error| Error::format(path, error.to_string()))?;
    header.resize(header.len().next_multiple_of(8), b' ');
    Ok(header)
}

/// An open safetensors file: the header is read, tensors are read when asked for.
#[derive(Debug)]
pub(crate) struct TensorFile {
    path: PathBuf,
    file: File,
    metadata: Metadata,
    data_start: u64,
}

impl TensorFile {
    /// Opens a file and checks that header and size agree.
    ///
    /// # Errors
    /// A file that cannot be read or is no safetensors file.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let mut file = File::open(path).map_err(Error::io("read", path))?;
        let size = file.metadata().map_err(Error::io("read", path))?.len();
        let too_short = || Error::format(path, format!("{size} bytes are too few for a safetensors file"));
        let mut length = [0u8; 8];
        file.read_exact(&mut length).map_err(|_| too_short())?;
        let header_bytes = u64::from_le_bytes(length);
        if header_bytes > MAX_HEADER_BYTES || header_bytes + 8 > size {
            return Err(Error::format(path, format!("a header of {header_bytes} bytes cannot be right")));
        }
        let mut header = vec![0u8; header_bytes as usize];
        file.read_exact(&mut header).map_err(Error::io("read", path))?;
        let metadata: Metadata = serde_json::from_slice(&header)
            .map_err(|error| Error::format(path, format!("its header cannot be read: {error}")))?;
        let data_start = 8 + header_bytes;
        let expected = data_start + metadata.data_len() as u64;
        if expected != size {
            return Err(Error::format(path, format!("{size} bytes, but its header announces {expected}")));
        }
        Ok(Self { path: path.to_path_buf(), file, metadata, data_start })
    }

    /// Names in the order of the file.
    pub(crate) fn names(&self) -> Vec<String> {
        self.metadata.offset_keys()
    }

    /// A note of the header.
    pub(crate) fn note(&self, key: &str) -> Option<&str> {
        self.metadata.metadata().as_ref()?.get(key).map(String::as_str)
    }

    /// The shape of a tensor, if it is there.
    pub(crate) fn shape(&self, name: &str) -> Option<&[usize]> {
        self.metadata.info(name).map(|info| info.shape.as_slice())
    }

    /// The elements of an f32 or bf16 tensor, widened to f32, in row-major order.
    ///
    /// # Errors
    /// No such tensor, another dtype, or whatever the file system refuses.
    pub(crate) fn read_f32(&self, name: &str) -> Result<Vec<f32>> {
        let info = self
            .metadata
            .info(name)
            .ok_or_else(|| Error::format(&self.path, format!("it has no tensor `{name}`")))?;
        let (start, end) = info.data_offsets;
        let mut bytes = vec![0u8; end - start];
        let mut file = &self.file;
        file.seek(SeekFrom::Start(self.data_start + start as u64))
            .and_then(|_| file.read_exact(&mut bytes))
            .map_err(Error::io("read", &self.path))?;
        match info.dtype {
            Dtype::F32 => Ok(bytes
                .chunks_exact(4)
                .map(|value| f32::from_le_bytes([value[0], value[1], value[2], value[3]]))
                .collect()),
            Dtype::BF16 => Ok(bytes
                .chunks_exact(2)
                .map(|value| bf16::from_le_bytes([value[0], value[1]]).to_f32())
                .collect()),
            other => Err(Error::format(&self.path, format!("`{name}` has dtype {other}, not F32 or BF16"))),
        }
    }

    /// What keeps the file from standing for exactly these tensors: names missing or unknown, shapes,
    /// dtypes other than `allowed`.
    pub(crate) fn problems(&self, expected: &[(String, &Tensor)], allowed: &[Encoding]) -> Vec<String> {
        let mut problems = Vec::new();
        let mut unknown: BTreeSet<String> = self.names().into_iter().collect();
        for (name, tensor) in expected {
            unknown.remove(name);
            match self.metadata.info(name) {
                None => problems.push(format!("`{name}` is missing")),
                Some(info) if info.shape != tensor.dims() => problems.push(format!(
                    "`{name}` has shape {:?}, the model needs {:?}",
                    info.shape,
                    tensor.dims()
                )),
                Some(info) if !allowed.iter().any(|encoding| encoding.dtype() == info.dtype) => {
                    let allowed: Vec<_> =
                        allowed.iter().map(|encoding| encoding.dtype().to_string()).collect();
                    let allowed = allowed.join(" or ");
                    problems
                        .push(format!("`{name}` is stored as {}, only {allowed} is read here", info.dtype));
                }
                Some(_) if tensor.dtype() != DType::F32 => problems
                    .push(format!("`{name}` is {:?} in the model, and only f32 is restored", tensor.dtype())),
                Some(_) => {}
            }
        }
        problems.extend(unknown.into_iter().map(|name| format!("`{name}` is unknown to the model")));
        problems
    }

    /// Refuses a file that does not stand for exactly these tensors; see [`Self::problems`].
    ///
    /// # Errors
    /// [`Error::Mismatch`] with every problem.
    pub(crate) fn expect(&self, expected: &[(String, &Tensor)], allowed: &[Encoding]) -> Result<()> {
        let problems = self.problems(expected, allowed);
        if problems.is_empty() { Ok(()) } else { Err(Error::Mismatch { path: self.path.clone(), problems }) }
    }

    /// Overwrites tensors in place, each from the entry of its name.
    ///
    /// # Errors
    /// As [`Self::read_f32`], or a tensor that cannot be written in place.
    pub(crate) fn restore(&self, tensors: &[(String, &Tensor)]) -> Result<()> {
        for (name, tensor) in tensors {
            atpm_core::overwrite_f32(tensor, &self.read_f32(name)?)?;
        }
        Ok(())
    }
}
