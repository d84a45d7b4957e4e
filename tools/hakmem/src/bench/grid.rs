//! grid.rs - columns of text, folded where they do not fit: the first columns stand in every block.
//!
//! Rule: a mark has a column of its own behind every value, so that digits stand below digits.

use crate::text::{Colour, paint};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mark {
    None,
    Best,
    Tie,
    Failed,
}

impl Mark {
    fn character(self) -> char {
        match self {
            Mark::Best => '*',
            Mark::Tie => '=',
            Mark::None | Mark::Failed => ' ',
        }
    }

    fn painted(self, text: &str, colours: bool) -> String {
        match self {
            Mark::Best | Mark::Tie => paint(text, Colour::Green, colours),
            Mark::Failed => paint(text, Colour::Red, colours),
            Mark::None => text.to_owned(),
        }
    }
}

struct Line {
    labels: Vec<String>,
    cells: Vec<(String, Mark)>,
}

/// Labels on the left, values on the right.
pub struct Grid {
    labels: Vec<String>,
    /// Header, and the group that must not be torn apart.
    columns: Vec<(String, String)>,
    rows: Vec<Line>,
    feet: Vec<Line>,
}

const GAP: &str = "  ";

impl Grid {
    pub fn new(labels: &[&str]) -> Grid {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        Grid { labels, columns: Vec::new(), rows: Vec::new(), feet: Vec::new() }
    }

    pub fn column(&mut self, header: &str, group: &str) {
        self.columns.push((header.to_owned(), group.to_owned()));
    }

    pub fn row(&mut self, labels: &[String], cells: Vec<(String, Mark)>) {
        self.rows.push(Line { labels: labels.to_vec(), cells });
    }

    pub fn foot(&mut self, labels: &[String], cells: Vec<(String, Mark)>) {
        self.feet.push(Line { labels: labels.to_vec(), cells });
    }

    pub fn row_count(&self) -> usize {
        self.rows.len()
    }

    fn lines(&self) -> impl Iterator<Item = &Line> {
        self.rows.iter().chain(&self.feet)
    }

    fn label_width(&self, at: usize) -> usize {
        let is_used = self.lines().any(|line| line.labels.get(at).is_some_and(|label| !label.is_empty()));
        if !is_used {
            return 0;
        }
        let widths = self.lines().filter_map(|line| line.labels.get(at)).map(|label| label.chars().count());
        widths.chain([self.labels[at].chars().count()]).max().unwrap_or(0)
    }

    /// Without the mark.
    fn column_width(&self, at: usize) -> usize {
        let widths = self.lines().filter_map(|line| line.cells.get(at)).map(|cell| cell.0.chars().count());
        widths.chain([self.columns[at].0.chars().count()]).max().unwrap_or(0)
    }

    /// The columns of each block.
    fn blocks(&self, left: usize, width: usize) -> Vec<Vec<usize>> {
        let mut blocks: Vec<Vec<usize>> = Vec::new();
        let mut used = 0;
        let mut at = 0;
        while at < self.columns.len() {
            let group = &self.columns[at].1;
            let end = (at..self.columns.len()).find(|next| self.columns[*next].1 != *group);
            let end = end.unwrap_or(self.columns.len());
            let needed: usize = (at..end).map(|column| self.column_width(column) + 2).sum();
            match blocks.last_mut() {
                Some(block) if left + used + needed <= width => block.extend(at..end),
                _ => {
                    blocks.push((at..end).collect());
                    used = 0;
                }
            }
            used += needed;
            at = end;
        }
        blocks
    }

    pub fn text(&self, width: usize, colours: bool) -> String {
        let label_widths: Vec<usize> = (0..self.labels.len()).map(|at| self.label_width(at)).collect();
        let left: usize =
            label_widths.iter().filter(|width| **width > 0).map(|width| width + GAP.len()).sum();
        let mut out = String::new();
        for (number, block) in self.blocks(left.saturating_sub(GAP.len()), width).iter().enumerate() {
            if number > 0 {
                out.push('\n');
            }
            let headers = block.iter().map(|at| (self.columns[*at].0.clone(), Mark::None));
            let mut head = vec![(String::new(), Mark::None); self.columns.len()];
            block.iter().zip(headers).for_each(|(at, header)| head[*at] = header);
            let head = Line { labels: self.labels.clone(), cells: head };
            self.line(&mut out, &head, &label_widths, block, colours);
            for (at, line) in self.lines().enumerate() {
                if at == self.rows.len() {
                    let ruled: usize = block.iter().map(|at| self.column_width(*at) + 2).sum();
                    out.push_str(&"-".repeat((left.saturating_sub(GAP.len()) + ruled).min(width)));
                    out.push('\n');
                }
                self.line(&mut out, line, &label_widths, block, colours);
            }
        }
        out
    }

    fn line(&self, out: &mut String, line: &Line, label_widths: &[usize], block: &[usize], colours: bool) {
        let mut text = String::new();
        for (at, width) in label_widths.iter().enumerate().filter(|(_, width)| **width > 0) {
            let label = line.labels.get(at).map_or("", String::as_str);
            text.push_str(&format!("{}{label:<width$}", if at > 0 { GAP } else { "" }));
        }
        for at in block {
            let width = self.column_width(*at);
            let (cell, mark) = line.cells.get(*at).cloned().unwrap_or((String::new(), Mark::None));
            let padding = " ".repeat(width - cell.chars().count());
            text.push_str(&format!(" {padding}{}{}", mark.painted(&cell, colours), mark.character()));
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        let mut grid = Grid::new(&["row", "unit"]);
        for name in ["hakmem", "of best", "glibc", "other"] {
            grid.column(name, if name == "of best" { "hakmem" } else { name });
        }
        let cells = |values: [&str; 4], best: usize| -> Vec<(String, Mark)> {
            let mark = |at| if at == best { Mark::Best } else { Mark::None };
            values.iter().enumerate().map(|(at, value)| ((*value).to_owned(), mark(at))).collect()
        };
        grid.row(&["a/1".to_owned(), "ns".to_owned()], cells(["12.5", "1.25", "10.0", "11.0"], 2));
        grid.row(&["long/row".to_owned(), "us".to_owned()], cells(["1.00", "1.00", "2.00", "crashed"], 0));
        grid.foot(&["mean".to_owned(), String::new()], cells(["1.118", "", "1.414", "1.100"], 9));
        grid
    }

    #[test]
    fn a_grid_that_fits_is_one_block() {
        assert_eq!(
            grid().text(100, false),
            "row       unit hakmem  of best  glibc    other\n\
             a/1       ns     12.5     1.25   10.0*    11.0\n\
             long/row  us     1.00*    1.00   2.00  crashed\n\
             -----------------------------------------------\n\
             mean            1.118           1.414    1.100\n"
        );
    }

    #[test]
    fn a_grid_that_does_not_fit_is_folded_between_groups() {
        let text = grid().text(34, false);
        assert!(text.lines().all(|line| line.chars().count() <= 34), "{text}");
        let heads: Vec<&str> = text.lines().filter(|line| line.starts_with("row")).collect();
        assert_eq!(heads, ["row       unit hakmem  of best", "row       unit glibc    other"]);
    }

    #[test]
    fn colours_do_not_move_the_columns() {
        let plain = grid().text(100, false);
        let coloured = grid().text(100, true);
        assert!(coloured.contains("\x1b[32m10.0\x1b[0m*"), "{coloured}");
        assert_eq!(coloured.replace("\x1b[32m", "").replace("\x1b[0m", ""), plain);
    }
}
