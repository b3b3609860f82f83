//! Cards that can be emulated.

/// Properties of a card that a program can query. From NVIDIA's data sheets and the tables of compute capabilities in
/// the CUDA C++ Programming Guide, appendix K.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Card {
    /// Name in `FAKECUDA_CARD`.
    pub key: &'static str,
    /// Name that the driver reports.
    pub name: &'static str,
    /// Compute capability: major and minor version.
    pub capability: (i32, i32),
    /// Number of streaming multiprocessors.
    pub multiprocessors: i32,
    /// Bytes of shared memory of a multiprocessor.
    pub shared_memory: i32,
    /// Bytes of shared memory that one block may opt into.
    pub shared_memory_optin: i32,
    /// Maximum number of threads resident on a multiprocessor.
    pub threads: i32,
    /// Maximum number of blocks resident on a multiprocessor.
    pub blocks: i32,
    /// Bytes of the L2 cache.
    pub cache: i32,
    /// Bytes of memory.
    pub memory: u64,
}

const KIB: i32 = 1 << 10;
const MIB: i32 = 1 << 20;

impl Card {
    /// All known cards.
    pub const ALL: [Self; 9] = [
        Self::hopper("h200", "NVIDIA H200", 150_754_820_096),
        Self::hopper("h100", "NVIDIA H100 80GB HBM3", 85_520_809_984),
        Self {
            key: "a100",
            name: "NVIDIA A100-SXM4-80GB",
            capability: (8, 0),
            multiprocessors: 108,
            shared_memory: 164 * KIB,
            shared_memory_optin: 163 * KIB,
            threads: 2048,
            blocks: 32,
            cache: 40 * MIB,
            memory: 84_974_239_744,
        },
        Self::ada("l4", "NVIDIA L4", 58, 48 * MIB, 23_034 << 20),
        Self::ada("rtx4090", "NVIDIA GeForce RTX 4090", 128, 72 * MIB, 24_564 << 20),
        Self::ada("rtx4060", "NVIDIA GeForce RTX 4060", 24, 24 * MIB, 8188 << 20),
        Self {
            key: "rtx3060",
            name: "NVIDIA GeForce RTX 3060",
            capability: (8, 6),
            multiprocessors: 28,
            shared_memory: 100 * KIB,
            shared_memory_optin: 99 * KIB,
            threads: 1536,
            blocks: 16,
            cache: 3 * MIB,
            memory: 12_044 << 20,
        },
        Self {
            key: "rtx5060",
            name: "NVIDIA GeForce RTX 5060",
            capability: (12, 0),
            multiprocessors: 30,
            shared_memory: 100 * KIB,
            shared_memory_optin: 99 * KIB,
            threads: 1536,
            blocks: 24,
            cache: 32 * MIB,
            memory: 8151 << 20,
        },
        Self {
            key: "t4",
            name: "Tesla T4",
            capability: (7, 5),
            multiprocessors: 40,
            shared_memory: 64 * KIB,
            shared_memory_optin: 64 * KIB,
            threads: 1024,
            blocks: 16,
            cache: 4 * MIB,
            memory: 15_655_829_504,
        },
    ];

    /// Returns the card of that name in `FAKECUDA_CARD`.
    pub fn named(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|card| card.key.eq_ignore_ascii_case(key))
    }

    /// Returns the compute capability as a number: 90 for 9.0.
    pub fn architecture(&self) -> u32 {
        (self.capability.0 * 10 + self.capability.1).unsigned_abs()
    }

    const fn hopper(key: &'static str, name: &'static str, memory: u64) -> Self {
        Self {
            key,
            name,
            capability: (9, 0),
            multiprocessors: 132,
            shared_memory: 228 * KIB,
            shared_memory_optin: 227 * KIB,
            threads: 2048,
            blocks: 32,
            cache: 50 * MIB,
            memory,
        }
    }

    const fn ada(key: &'static str, name: &'static str, multiprocessors: i32, cache: i32, memory: u64) -> Self {
        Self {
            key,
            name,
            capability: (8, 9),
            multiprocessors,
            shared_memory: 100 * KIB,
            shared_memory_optin: 99 * KIB,
            threads: 1536,
            blocks: 24,
            cache,
            memory,
        }
    }
}
