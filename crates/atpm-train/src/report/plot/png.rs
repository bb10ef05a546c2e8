//! From SVG to PNG, with fonts that come as bytes: nothing of the system is read.

use std::sync::Arc;

use resvg::{tiny_skia, usvg};

use super::{Error, Result};

/// Pixels of the PNG per unit of the SVG, so that it is sharp where it is shown at half its size.
pub const PIXELS_PER_UNIT: u8 = 2;

/// The PNG of an SVG document.
///
/// # Errors
/// An SVG that cannot be read, or too large a picture.
pub(super) fn rasterise(svg: &str) -> Result<Vec<u8>> {
    let fail = |problem: String| Error::Rasterise { problem };
    let mut fonts = usvg::fontdb::Database::new();
    // The first font is the picture's; the second has the glyphs of scripts that the first lacks.
    for font in [epaint_default_fonts::UBUNTU_LIGHT, epaint_default_fonts::HACK_REGULAR] {
        fonts.load_font_source(usvg::fontdb::Source::Binary(Arc::new(font)));
    }
    let family = fonts.faces().next().map_or_else(String::new, |face| face.families[0].0.clone());
    fonts.set_sans_serif_family(family);
    let options = usvg::Options { fontdb: Arc::new(fonts), ..usvg::Options::default() };
    let tree = usvg::Tree::from_str(svg, &options).map_err(|error| fail(error.to_string()))?;
    let scale = f32::from(PIXELS_PER_UNIT);
    let size = tree.size().to_int_size().scale_by(scale).ok_or_else(|| fail("it is too large".into()))?;
    let mut pixels =
        tiny_skia::Pixmap::new(size.width(), size.height()).ok_or_else(|| fail("it is too large".into()))?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(scale, scale), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| fail(error.to_string()))
}
