//! Tables: columns as wide as their cells, or as the terminal allows.

use super::inline::{Inline, Word};

/// Columns between two cells.
const GAP: usize = 3;

/// The fewest columns of a cell.
const NARROWEST: usize = 4;

/// The side of its column at which a cell stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Middle,
    Right,
}

/// Returns the lines of a table within `width` columns; rows that make none stay as they are.
pub fn laid_out(rows: &[String], width: usize, is_styled: bool) -> String {
    let as_they_are = || rows.iter().map(|row| format!("{row}\n")).collect();
    let cells: Vec<Vec<String>> = rows.iter().map(|row| cells(row)).collect();
    let [head, rule, body @ ..] = &cells[..] else { return as_they_are() };
    let Some(sides) = sides(rule) else { return as_they_are() };
    let rows: Vec<Vec<Cell>> = std::iter::once(head)
        .chain(body)
        .enumerate()
        .map(|(at, row)| {
            let texts = (0..sides.len()).map(|at| row.get(at).map_or("", String::as_str));
            texts.map(|text| Cell::new(text, at == 0, is_styled)).collect()
        })
        .collect();
    let widths = fitted(&rows, sides.len(), width);
    let dim = |text: &str| match is_styled {
        true => format!("\x1b[2m{text}\x1b[0m"),
        false => text.to_owned(),
    };
    let mut out = String::new();
    for (at, row) in rows.iter().enumerate() {
        let wrapped: Vec<Vec<Word>> =
            row.iter().zip(&widths).map(|(cell, width)| cell.wrapped(*width)).collect();
        let height = wrapped.iter().map(Vec::len).max().unwrap_or(0).max(1);
        for line in 0..height {
            let parts = wrapped.iter().zip(&widths).zip(&sides);
            let parts: Vec<String> = parts
                .map(|((lines, width), side)| padded(lines.get(line), *width, *side))
                .collect();
            out.push_str(parts.join(&dim(" │ ")).trim_end());
            out.push('\n');
        }
        if at == 0 {
            let parts: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
            out.push_str(&dim(&parts.join("─┼─")));
            out.push('\n');
        }
    }
    out
}

/// The words of a cell, line by line.
struct Cell(Vec<Vec<Word>>);

impl Cell {
    fn new(text: &str, is_head: bool, is_styled: bool) -> Cell {
        let mut inline = Inline::new(is_styled);
        if is_head {
            inline.begin_heading();
        }
        let text = text.replace("<br/>", "<br>").replace("<br />", "<br>");
        let lines = text.split("<br>");
        Cell(
            lines
                .map(|line| line.split_whitespace().map(|word| inline.word(word)).collect())
                .collect(),
        )
    }

    /// Columns of its longest line.
    fn width(&self) -> usize {
        let of = |line: &Vec<Word>| {
            line.iter().map(|word| word.width + 1).sum::<usize>().saturating_sub(1)
        };
        self.0.iter().map(of).max().unwrap_or(0)
    }

    /// Its lines within `width` columns.
    fn wrapped(&self, width: usize) -> Vec<Word> {
        let mut lines = Vec::new();
        for words in &self.0 {
            let mut line = Word { text: String::new(), width: 0 };
            for word in words {
                if line.width > 0 && line.width + 1 + word.width > width {
                    let full = std::mem::replace(&mut line, Word { text: String::new(), width: 0 });
                    lines.push(full);
                }
                if line.width > 0 {
                    line.text.push(' ');
                    line.width += 1;
                }
                line.text.push_str(&word.text);
                line.width += word.width;
            }
            lines.push(line);
        }
        lines
    }
}

fn padded(line: Option<&Word>, width: usize, side: Side) -> String {
    let none = Word { text: String::new(), width: 0 };
    let Word { text, width: taken } = line.unwrap_or(&none);
    let left = width.saturating_sub(*taken);
    let before = match side {
        Side::Left => 0,
        Side::Middle => left / 2,
        Side::Right => left,
    };
    format!("{}{text}{}", " ".repeat(before), " ".repeat(left - before))
}

/// Returns the columns of each column: what its cells take, where all of them fit into `width`.
fn fitted(rows: &[Vec<Cell>], columns: usize, width: usize) -> Vec<usize> {
    let widest = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(Cell::width).max();
    let mut widths: Vec<usize> = (0..columns).map(|at| widest(at).unwrap_or(0).max(1)).collect();
    let gaps = GAP * columns.saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > width {
        match widths.iter_mut().max() {
            Some(widest) if *widest > NARROWEST => *widest -= 1,
            _ => break,
        }
    }
    widths
}

/// Returns the sides that a table's second row tells; `None` where it is no such row.
fn sides(rule: &[String]) -> Option<Vec<Side>> {
    let side = |cell: &String| {
        let dashes = cell.trim_matches(':');
        let is_rule = !dashes.is_empty() && dashes.chars().all(|c| c == '-');
        is_rule.then(|| match (cell.starts_with(':'), cell.ends_with(':')) {
            (true, true) => Side::Middle,
            (false, true) => Side::Right,
            _ => Side::Left,
        })
    };
    rule.iter().map(side).collect()
}

/// The cells of a row. A bar behind a backslash or within code ends none.
fn cells(row: &str) -> Vec<String> {
    let row = row.trim();
    let row = row.strip_prefix('|').unwrap_or(row);
    let mut cells = vec![String::new()];
    let (mut is_escaped, mut is_code) = (false, false);
    for c in row.chars() {
        if c == '|' && !is_escaped && !is_code {
            cells.push(String::new());
            continue;
        }
        is_code ^= c == '`';
        if let Some(cell) = cells.last_mut() {
            if c == '|' && is_escaped {
                cell.pop();
            }
            cell.push(c);
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    if cells.last().is_some_and(|cell| cell.trim().is_empty()) {
        cells.pop();
    }
    cells.iter().map(|cell| cell.trim().to_owned()).collect()
}
