//! Tables in Markdown that are as wide as what is in them.

/// `rows`, the first of which is the head; columns from `numbers` on are set to the right.
pub fn markdown(rows: &[Vec<String>], numbers: usize) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..columns).filter_map(width).collect();
    let rule: Vec<String> = widths
        .iter()
        .enumerate()
        .map(|(column, &width)| match column < numbers {
            true => "-".repeat(width),
            false => "-".repeat(width - 1) + ":",
        })
        .collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (cell, &width))| match column < numbers {
                true => format!("{cell:<width$}"),
                false => format!("{cell:>width$}"),
            })
            .collect();
        text += &format!("| {} |\n", cells.join(" | "));
        if number == 0 {
            text += &format!("| {} |\n", rule.join(" | "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::markdown;

    #[test]
    fn words_stand_left_and_numbers_right() {
        let rows = [["part", "ms"], ["a longer one", "1.5"]];
        let rows = rows.map(|row| row.map(String::from).to_vec());
        let table = "| part         |  ms |\n| ------------ | --: |\n| a longer one | 1.5 |\n";
        assert_eq!(markdown(&rows, 1), table);
        assert_eq!(markdown(&[], 1), "");
    }
}
