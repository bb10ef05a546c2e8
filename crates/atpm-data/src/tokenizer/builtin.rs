//! The tokenizers that need no file: `gpt2` and `bytes`.

use std::collections::HashMap;

use super::bpe::Bpe;

/// GPT-2's tokens without end-of-text, whose id is the next one.
const GPT2_TOKENS: u32 = 50_256;

/// The tables of a built-in tokenizer and its end-of-text id.
pub(super) fn open(name: &str) -> Option<Result<(Bpe, u32), String>> {
    match name {
        "gpt2" => Some(gpt2()),
        "bytes" => Some(bytes()),
        _ => None,
    }
}

/// One id a byte, and end-of-text after them.
fn bytes() -> Result<(Bpe, u32), String> {
    let mut pieces: Vec<Box<[u8]>> = (0..=u8::MAX).map(|byte| Box::from([byte])).collect();
    pieces.push(Box::default());
    Ok((Bpe::new(pieces, &[])?, 256))
}

/// GPT-2's vocabulary and merges, from the ranks that tiktoken ships.
fn gpt2() -> Result<(Bpe, u32), String> {
    let ranks = tiktoken_rs::r50k_base().map_err(|error| error.to_string())?;
    let piece = |id| ranks.decode_bytes(&[id]).map(Vec::into_boxed_slice).map_err(|error| error.to_string());
    let mut pieces = (0..GPT2_TOKENS).map(piece).collect::<Result<Vec<_>, _>>()?;
    let pairs = merges(&pieces)?;
    pieces.push(Box::default());
    Ok((Bpe::new(pieces, &pairs)?, GPT2_TOKENS))
}

/// The merge that made each token: what its bytes come to by all merges of lower rank is a pair.
fn merges(pieces: &[Box<[u8]>]) -> Result<Vec<(u32, u32)>, String> {
    let ids: HashMap<&[u8], u32> = pieces.iter().zip(0u32..).map(|(piece, id)| (&**piece, id)).collect();
    let pair = |(piece, id): (&[u8], u32)| {
        // Cut points of the token's parts; removing one joins two parts.
        let mut cuts: Vec<usize> = (0..=piece.len()).collect();
        while cuts.len() > 3 {
            let joined = |at: usize| {
                ids.get(&piece[cuts[at - 1]..cuts[at + 1]]).copied().filter(|&joined| joined < id)
            };
            let best = (1..cuts.len() - 1).filter_map(|at| Some((joined(at)?, at))).min();
            let (_, at) = best.ok_or_else(|| format!("token {id} is not made of two others"))?;
            cuts.remove(at);
        }
        let part = |range: std::ops::Range<usize>| ids.get(&piece[range]).copied();
        let left = part(0..cuts[1]);
        let right = part(cuts[1]..piece.len());
        left.zip(right).ok_or_else(|| format!("token {id} has a part without an id"))
    };
    pieces.iter().map(|piece| &**piece).zip(0u32..).filter(|(piece, _)| piece.len() > 1).map(pair).collect()
}
