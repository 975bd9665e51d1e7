//! The instructions of AMX, which Rust has no stable functions for.

use std::arch::asm;

use super::super::lanes::Line;

/// Values of k in a tile.
pub(super) const STEP: usize = 32;

/// Rows in a tile.
pub(super) const ROWS: usize = 16;

/// 16 rows of 32 bf16 or 16 f32.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Tile(pub(super) [Line; 16]);

impl Tile {
    pub(super) const ZERO: Tile = Tile([Line::ZERO; 16]);
}

/// The operand of `ldtilecfg`: eight tiles of 16 rows of 64 bytes.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

static CONFIG: Config = {
    let (mut row_bytes, mut rows) = ([0; 16], [0; 16]);
    let mut tile = 0;
    while tile < 8 {
        (row_bytes[tile], rows[tile]) = (64, 16);
        tile += 1;
    }
    Config { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows }
};

/// Runs `work` with eight whole tiles on this thread.
///
/// # Safety
/// The processor has AMX, and the system lets this process use it.
pub(super) unsafe fn with_tiles(work: impl FnOnce()) {
    // SAFETY: the configuration is 64 bytes in the form that the instruction reads. The compiler
    // uses no tiles of its own.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const CONFIG, options(nostack, preserves_flags)) };
    work();
    // SAFETY: the caller's promise. Without it the system saves the tiles at each switch of
    // threads.
    unsafe { asm!("tilerelease", options(nostack, preserves_flags)) };
}

/// `sums[2 i + j]` = row block `i` of `w` times row block `j` of `x`, summed over all their tiles;
/// `[16 rows of w, 16 rows of x]` each. `w` has two blocks, `x` one or two, one after the other.
///
/// # Safety
/// Tiles are configured on this thread.
#[inline]
pub(super) unsafe fn multiply(w: &[Tile], x: &[Tile], sums: &mut [Tile; 4]) {
    let steps = w.len() / 2;
    assert!(steps > 0 && w.len() == 2 * steps && (x.len() == steps || x.len() == 2 * steps));
    let (w0, w1, x0) = (w.as_ptr(), w[steps..].as_ptr(), x.as_ptr());
    let to = sums.as_mut_ptr();
    if x.len() == steps {
        // SAFETY: the pointers walk over `steps` tiles each, which the slices have; the sums are
        // four tiles of 1024 bytes.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tilezero tmm2",
                "2:",
                "tileloadd tmm6, [{x0} + {row}*1]",
                "tileloadd tmm4, [{w0} + {row}*1]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm5, [{w1} + {row}*1]",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "add {x0}, 1024",
                "add {w0}, 1024",
                "add {w1}, 1024",
                "dec {steps}",
                "jnz 2b",
                "tilestored [{to} + {row}*1], tmm0",
                "tilestored [{to} + {row}*1 + 2048], tmm2",
                x0 = inout(reg) x0 => _, w0 = inout(reg) w0 => _, w1 = inout(reg) w1 => _,
                steps = inout(reg) steps => _, row = in(reg) 64usize, to = in(reg) to,
                options(nostack),
            );
        }
        return;
    }
    let x1 = x[steps..].as_ptr();
    // SAFETY: as above, with a second block of x.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "2:",
            "tileloadd tmm4, [{w0} + {row}*1]",
            "tileloadd tmm6, [{x0} + {row}*1]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{x1} + {row}*1]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{w1} + {row}*1]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {w0}, 1024",
            "add {x0}, 1024",
            "add {x1}, 1024",
            "add {w1}, 1024",
            "dec {steps}",
            "jnz 2b",
            "tilestored [{to} + {row}*1], tmm0",
            "tilestored [{to} + {row}*1 + 1024], tmm1",
            "tilestored [{to} + {row}*1 + 2048], tmm2",
            "tilestored [{to} + {row}*1 + 3072], tmm3",
            w0 = inout(reg) w0 => _, w1 = inout(reg) w1 => _,
            x0 = inout(reg) x0 => _, x1 = inout(reg) x1 => _,
            steps = inout(reg) steps => _, row = in(reg) 64usize, to = in(reg) to,
            options(nostack),
        );
    }
}
