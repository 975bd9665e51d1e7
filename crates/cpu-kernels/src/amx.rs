//! Detection of AMX, and the system's permission to use it.

use std::arch::x86_64::{__cpuid, __cpuid_count};

/// Returns true when tiles of bf16 can be used. Asks Linux for them, which has to be done before
/// their first use.
pub(crate) fn is_available() -> bool {
    const OSXSAVE: u32 = 1 << 27;
    const BF16_AND_TILE: u32 = 1 << 22 | 1 << 24;
    /// The tiles' configuration and their data.
    const STATE: u64 = 1 << 17 | 1 << 18;
    let saved = __cpuid(1).ecx & OSXSAVE != 0;
    let has = __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & BF16_AND_TILE == BF16_AND_TILE;
    saved && has && enabled_state() & STATE == STATE && is_permitted()
}

/// The state of the processor that the system saves.
fn enabled_state() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the caller found OSXSAVE, with which this instruction may be used; it reads a
    // register.
    unsafe {
        std::arch::asm!(
            "xgetbv", in("ecx") 0, out("eax") low, out("edx") high,
            options(nomem, nostack, preserves_flags),
        );
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Asks the kernel for the state of tiles, for all threads of this process.
#[cfg(target_os = "linux")]
fn is_permitted() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const REQUEST_PERMISSION: i64 = 0x1023;
    const TILE_DATA: i64 = 18;
    let result: i64;
    // SAFETY: the call takes two numbers and touches no memory of ours; the kernel overwrites rcx
    // and r11.
    unsafe {
        std::arch::asm!(
            "syscall", inlateout("rax") ARCH_PRCTL => result,
            in("rdi") REQUEST_PERMISSION, in("rsi") TILE_DATA,
            out("rcx") _, out("r11") _, options(nostack),
        );
    }
    result == 0
}

#[cfg(not(target_os = "linux"))]
fn is_permitted() -> bool {
    false
}
