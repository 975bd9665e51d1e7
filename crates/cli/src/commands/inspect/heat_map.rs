//! Attention weights as a picture: an SVG with a panel for each layer and head.

use std::fmt::Write;

use inference_core::LayerAttention;

use super::attention::{Attention, mean};
use crate::failure::{Failure, Result};

/// Tokens that a picture has at most.
const MAX_TOKENS: usize = 512;
/// Squares of all panels together: some tens of megabytes.
const MAX_SQUARES: usize = 1 << 21;
/// Shades of a square.
const SHADES: usize = 24;
/// The room of labels beside a panel, in font sizes.
const LABELS: usize = 9;
/// The height of the title and the legend.
const HEADER: usize = 44;
const GAP: usize = 28;

/// Checks that no head is named twice.
///
/// # Errors
/// The head.
pub fn check_heads(heads: &[usize]) -> Result<()> {
    match heads.iter().enumerate().find(|(at, head)| heads[..*at].contains(head)) {
        None => Ok(()),
        Some((_, head)) => Err(Failure::Usage(format!("--head: {head} is given twice"))),
    }
}

/// Checks that a picture of so many tokens can be read.
///
/// # Errors
/// The bound.
pub fn check_size(tokens: usize) -> Result<()> {
    if tokens <= MAX_TOKENS {
        return Ok(());
    }
    Err(Failure::Other(format!(
        "--svg: the prompt has {tokens} tokens, a picture at most {MAX_TOKENS}: shorten it, or use \
         --safetensors"
    )))
}

/// One heat map: the weights of a head, or the mean of all.
struct Panel {
    title: String,
    /// `[tokens, positions.len()]`.
    weights: Vec<f32>,
}

impl Panel {
    fn head(layer: &LayerAttention, head: usize) -> Panel {
        let entropy = mean(layer.head_entropy(head).unwrap_or_default());
        Panel {
            title: format!("Layer {}, head {head}: entropy {entropy:.2} nats", layer.layer),
            weights: layer.head_weights(head).unwrap_or_default().to_vec(),
        }
    }

    fn mean_of_heads(layer: &LayerAttention) -> Panel {
        let heads = layer.n_heads;
        let all = layer.weights.as_ref().map_or(&[][..], |weights| &weights.values);
        let size = all.len() / heads.max(1);
        let mean_at = |at: usize| all.iter().skip(at).step_by(size).sum::<f32>() / heads as f32;
        let entropy = mean(layer.weights.as_ref().map_or(&[], |weights| &weights.entropy));
        Panel {
            title: format!(
                "Layer {}, mean of {heads} heads: entropy {entropy:.2} nats",
                layer.layer
            ),
            weights: (0..size).map(mean_at).collect(),
        }
    }
}

/// The picture of all layers: the mean of each one's heads, or these heads.
///
/// # Errors
/// A head that a layer does not have; more squares than a viewer takes.
pub fn draw(attention: &Attention, heads: &[usize]) -> Result<String> {
    let layers = &attention.snapshot.layers;
    for layer in layers {
        if let Some(head) = heads.iter().find(|head| **head >= layer.n_heads) {
            return Err(Failure::Usage(format!(
                "--head: layer {} has no head {head}; it has {}, from 0 on",
                layer.layer, layer.n_heads
            )));
        }
    }
    let tokens = attention.tokens.len();
    let count = layers.len() * heads.len().max(1);
    let squares = count * tokens * tokens;
    if squares > MAX_SQUARES {
        return Err(Failure::Other(format!(
            "--svg: {count} panels of {tokens} × {tokens} squares are more than a viewer takes, \
             {} at most: ask for fewer --layers",
            MAX_SQUARES / (tokens * tokens)
        )));
    }
    let panels = layers.iter().flat_map(|layer| match heads {
        [] => vec![Panel::mean_of_heads(layer)],
        heads => heads.iter().map(|head| Panel::head(layer, *head)).collect(),
    });
    let labels: Vec<String> =
        attention.tokens.iter().map(|token| escaped(&token.label())).collect();
    let panels: Vec<Panel> = panels.collect();
    Ok(Picture::new(&labels, &panels).draw(&escaped(&attention.snapshot.architecture)))
}

/// The sizes of a picture, in pixels.
struct Picture<'a> {
    labels: &'a [String],
    panels: &'a [Panel],
    /// The side of a square.
    cell: usize,
    font: usize,
    /// The room of labels.
    margin: usize,
    columns: usize,
}

impl Picture<'_> {
    fn new<'a>(labels: &'a [String], panels: &'a [Panel]) -> Picture<'a> {
        let cell = (640 / labels.len().max(1)).clamp(6, 22);
        let font = (cell - 1).min(12);
        let columns = (1..).find(|side| side * side >= panels.len()).unwrap_or(1);
        Picture { labels, panels, cell, font, margin: LABELS * font, columns }
    }

    fn draw(&self, architecture: &str) -> String {
        // A title must fit, however few tokens there are.
        let side = self.cell * self.labels.len();
        let width = (self.margin + side + GAP).max(380);
        let height = self.margin + side + 2 * GAP;
        let rows = self.panels.len().div_ceil(self.columns.max(1));
        let (w, h) = (width * self.columns + GAP, height * rows + HEADER + GAP);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" \
             viewBox=\"0 0 {w} {h}\" font-family=\"ui-sans-serif, system-ui, sans-serif\" \
             fill=\"#222\">\n<title>Attention weights ({architecture})</title>\n\
             <rect width=\"{w}\" height=\"{h}\" fill=\"#fff\"/>\n"
        );
        self.legend(&mut svg);
        for (at, panel) in self.panels.iter().enumerate() {
            let x = GAP + at % self.columns * width;
            let y = HEADER + GAP + at / self.columns * height;
            self.panel(&mut svg, panel, (x, y));
        }
        svg += "</svg>\n";
        svg
    }

    fn legend(&self, svg: &mut String) {
        *svg += "<g font-size=\"12\" transform=\"translate(28 18)\">\
                 <text y=\"11\">Each row: how one token shares its attention.</text>";
        for (at, weight) in [0.01_f32, 0.1, 0.25, 0.5, 1.0].into_iter().enumerate() {
            let (x, opacity) = (56 * at, opacity(shade(weight)));
            let _ = write!(
                svg,
                "<rect x=\"{x}\" y=\"20\" width=\"12\" height=\"12\" fill=\"#08519c\" \
                 fill-opacity=\"{opacity:.3}\" stroke=\"#bbb\"/>\
                 <text x=\"{}\" y=\"30\">{:.0}%</text>",
                x + 16,
                weight * 100.0
            );
        }
        *svg += "</g>\n";
    }

    fn panel(&self, svg: &mut String, panel: &Panel, (x, y): (usize, usize)) {
        let Picture { cell, font, margin, labels, .. } = self;
        let (n, side) = (labels.len(), cell * labels.len());
        let _ = writeln!(
            svg,
            "<g transform=\"translate({x} {y})\"><text font-size=\"13\" font-weight=\"600\" \
             y=\"12\">{}</text>\n<g transform=\"translate({margin} {})\" font-size=\"{font}\">",
            panel.title,
            margin + 18
        );
        for (at, label) in labels.iter().enumerate() {
            let middle = at * cell + cell / 2 + font / 3;
            let _ = writeln!(
                svg,
                "<text x=\"-4\" y=\"{middle}\" text-anchor=\"end\">{label}</text>\
                 <text transform=\"translate({middle} -4) rotate(-90)\">{label}</text>"
            );
        }
        // What lies behind a token, which it does not see, is grey.
        let _ = writeln!(
            svg,
            "<rect width=\"{side}\" height=\"{side}\" fill=\"#f1f1f1\"/>\n\
             <g transform=\"scale({cell})\" fill=\"#08519c\">"
        );
        let seen = |row: usize| format!("M0 {row}h{}v1H0z", row + 1);
        let seen: String = (0..n).map(seen).collect();
        let _ = writeln!(svg, "<path fill=\"#fff\" d=\"{seen}\"/>");
        let mut shades = vec![String::new(); SHADES + 1];
        let columns = panel.weights.len() / n.max(1);
        for (at, weight) in panel.weights.iter().enumerate() {
            let (row, column) = (at / columns, at % columns);
            // Where only the last positions are told, these are the last columns.
            let _ = write!(shades[shade(*weight)], "M{} {row}h1v1h-1z", column + n - columns);
        }
        for (shade, squares) in shades.iter().enumerate().skip(1).filter(|(_, s)| !s.is_empty()) {
            let opacity = opacity(shade);
            let _ = writeln!(svg, "<path fill-opacity=\"{opacity:.3}\" d=\"{squares}\"/>");
        }
        let _ = writeln!(
            svg,
            "</g>\n<path d=\"M0 0H{side}V{side}H0z\" fill=\"none\" stroke=\"#bbb\"/></g></g>"
        );
    }
}

/// The shade of a weight: its square root, so that small ones can be told from none.
fn shade(weight: f32) -> usize {
    (weight.clamp(0.0, 1.0).sqrt() * SHADES as f32).round() as usize
}

fn opacity(shade: usize) -> f32 {
    shade as f32 / SHADES as f32
}

/// Text for XML: what marks it up is escaped, what it may not contain replaced.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&apos;",
            '\u{fffe}' | '\u{ffff}' => out.push(char::REPLACEMENT_CHARACTER),
            c if c.is_control() => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{check_heads, check_size, escaped, shade};

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(
            escaped("</text><a href=\"x\">&'"),
            "&lt;/text&gt;&lt;a href=&quot;x&quot;&gt;&amp;&apos;"
        );
        assert_eq!(escaped("a\u{0}\u{1b}\u{ffff}b"), "a���b");
    }

    #[test]
    fn shades_rise_with_weights() {
        assert_eq!((shade(0.0), shade(1.0), shade(0.25)), (0, 24, 12));
        assert_eq!((shade(-1.0), shade(2.0), shade(0.0001)), (0, 24, 0));
    }

    #[test]
    fn what_cannot_be_drawn_is_refused() {
        assert!(check_size(512).is_ok());
        let error = check_size(513).unwrap_err().to_string();
        assert!(error.contains("513 tokens, a picture at most 512"), "{error}");
        assert!(check_heads(&[0, 1]).is_ok());
        assert!(check_heads(&[1, 0, 1]).unwrap_err().to_string().contains("1 is given twice"));
    }
}
