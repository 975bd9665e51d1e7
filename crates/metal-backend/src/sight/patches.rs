//! The patches of a picture.

use pictures::{Picture, Rescale};

/// The patches of a picture, as a tower takes them.
#[derive(Debug)]
pub(crate) struct Patches {
    /// The values of each patch, patch after patch.
    pub values: Vec<f32>,
    /// Rows and columns of patches.
    pub grid: [i32; 2],
    /// Patches a side of the squares that follow each other; 1: row after row.
    pub square: i32,
}

/// In which order the values of a patch come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inside {
    /// Channel, frame, row, column: the picture is that many equal frames.
    Planes { frames: usize },
    /// Row, column, channel.
    Pixels,
}

impl Inside {
    fn frames(self) -> usize {
        match self {
            Inside::Planes { frames } => frames,
            Inside::Pixels => 1,
        }
    }
}

impl Patches {
    /// A picture whose sides are multiples of `side · square`, cut into patches of `side` pixels.
    pub fn cut(
        picture: &Picture,
        rescale: &Rescale,
        side: usize,
        square: i32,
        inside: Inside,
    ) -> Patches {
        let (width, height) = (picture.width() as usize, picture.height() as usize);
        let (table, rgb) = (rescale.table(), picture.rgb());
        let grid = [(height / side) as i32, (width / side) as i32];
        let mut patches = Patches { values: Vec::new(), grid, square };
        // So many pixels of a row from `left` on.
        let line = |row: usize, left: usize| {
            rgb[(row * width + left) * 3..][..side * 3].as_chunks::<3>().0
        };
        let number = |channel: usize, level: u8| table[channel][usize::from(level)];
        let mut values = Vec::with_capacity(width * height * 3 * inside.frames());
        for [row, column] in patches.places() {
            let (top, left) = (row as usize * side, column as usize * side);
            match inside {
                Inside::Planes { frames } => {
                    for channel in 0..3 {
                        let first = values.len();
                        for y in top..top + side {
                            let pixels = line(y, left).iter();
                            values.extend(pixels.map(|pixel| number(channel, pixel[channel])));
                        }
                        let end = values.len();
                        (1..frames).for_each(|_| values.extend_from_within(first..end));
                    }
                }
                Inside::Pixels => {
                    for y in top..top + side {
                        for [red, green, blue] in line(y, left) {
                            values.extend([number(0, *red), number(1, *green), number(2, *blue)]);
                        }
                    }
                }
            }
        }
        patches.values = values;
        patches
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        (self.grid[0] * self.grid[1]) as usize
    }

    /// Row and column of each, in their order.
    pub fn places(&self) -> impl Iterator<Item = [i32; 2]> + use<> {
        let ([rows, columns], square) = (self.grid, self.square);
        (0..rows / square).flat_map(move |row| {
            (0..columns / square).flat_map(move |column| {
                (0..square).flat_map(move |down| {
                    (0..square).map(move |across| [row * square + down, column * square + across])
                })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture() -> Picture {
        // Red counts columns, green counts rows.
        let rgb = (0..4).flat_map(|y| (0..8).flat_map(move |x| [x, y, 9])).collect();
        Picture::new(8, 4, rgb).expect("a picture")
    }

    const AS_IT_IS: Rescale = Rescale { factor: None, normalize: None };

    #[test]
    fn patches_come_in_squares_and_their_frames_are_equal() {
        let patches = Patches::cut(&picture(), &AS_IT_IS, 2, 2, Inside::Planes { frames: 2 });
        assert_eq!(patches.grid, [2, 4]);
        let places: Vec<_> = patches.places().collect();
        assert_eq!(places[..5], [[0, 0], [0, 1], [1, 0], [1, 1], [0, 2]]);
        // The third patch: columns 0 and 1, rows 2 and 3.
        let third = &patches.values[2 * 24..3 * 24];
        assert_eq!(third[..8], [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0]);
        assert_eq!(third[8..16], [2.0, 2.0, 3.0, 3.0, 2.0, 2.0, 3.0, 3.0]);
        assert_eq!(third[16..], [9.0; 8]);
    }

    #[test]
    fn pixels_keep_their_channels_together() {
        let patches = Patches::cut(&picture(), &AS_IT_IS, 2, 1, Inside::Pixels);
        let places: Vec<_> = patches.places().collect();
        assert_eq!(places[3..5], [[0, 3], [1, 0]]);
        let second = &patches.values[12..24];
        assert_eq!(second, [2.0, 0.0, 9.0, 3.0, 0.0, 9.0, 2.0, 1.0, 9.0, 3.0, 1.0, 9.0]);
    }
}
