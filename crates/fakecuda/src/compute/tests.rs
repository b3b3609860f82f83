use super::Computer;
use crate::tensor_map::Tiled;
use half::{bf16, f16};
use std::ffi::c_void;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Runs `kernel`, a source whose only kernel is `k`, on one block of `threads`; returns its error.
fn run<const N: usize>(kernel: &str, threads: u32, shared: u64, buffers: [*mut c_void; N]) -> Result<(), String> {
    run_on(kernel, [[1; 3], [threads, 1, 1]], shared, buffers, None)
}

fn run_on<const N: usize>(
    kernel: &str,
    sizes: [[u32; 3]; 2],
    shared: u64,
    mut buffers: [*mut c_void; N],
    sanitizer: Option<String>,
) -> Result<(), String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tmp/fakecuda-kernels");
    let mut computer = Computer::new(folder, sanitizer).expect("the folder");
    let mut values = buffers.each_mut().map(|buffer| std::ptr::from_mut(buffer).cast::<c_void>());
    // SAFETY: the kernels of these tests have as many parameters as they get buffers.
    unsafe { computer.run(0, "k", Some(Arc::from(kernel)), sizes, shared, values.as_mut_ptr()) }
}

fn buffer<T>(values: &mut [T]) -> *mut c_void {
    values.as_mut_ptr().cast()
}

#[test]
fn threads_meet_at_barriers_and_share_memory() {
    let kernel = r#"
extern "C" __global__ void __launch_bounds__(100) k(float const* const __restrict__ from, float * const __restrict__ to) {
extern __shared__ __align__(4) char s[];
float *shared = reinterpret_cast<float *>(&s[0]);
shared[threadIdx.x] = from[threadIdx.x];
__syncthreads();
to[threadIdx.x] = shared[99 - threadIdx.x];
}"#;
    let mut from: Vec<f32> = (0..100).map(|n| n as f32).collect();
    let mut to = vec![0.0_f32; 100];
    assert_eq!(run(kernel, 100, 400, [buffer(&mut from), buffer(&mut to)]), Ok(()));
    from.reverse();
    assert_eq!(to, from);
}

#[test]
fn a_barrier_that_some_threads_never_reach_is_told() {
    let kernel =
        r#"extern "C" __global__ void k() { if (threadIdx.x < 3) { __syncthreads(); } else { __syncwarp(); } }"#;
    assert_eq!(run(kernel, 8, 0, []), Err("threads wait for others that never come".into()));
    let kernel =
        "extern \"C\" __global__ void k() { if (threadIdx.x < 3) {\n__syncthreads(); } else {\n__syncthreads(); } }";
    let said = run(kernel, 8, 0, []).expect_err("barriers at two places");
    assert!(said.starts_with("threads wait at line"), "{said}");
}

#[test]
fn what_the_compiler_refuses_is_told() {
    let said = run("extern \"C\" __global__ void k() { cp_async_bulk(); }", 1, 0, []).expect_err("no such function");
    assert!(said.contains("cp_async_bulk"), "{said}");
}

#[test]
fn lanes_of_a_warp_exchange_what_they_have() {
    let kernel = r#"
extern "C" __global__ void k(uint32_t * const __restrict__ to) {
uint32_t const lane = threadIdx.x;
uint32_t sum = lane;
for (uint32_t by = 16; by > 0; by /= 2) { sum += __shfl_xor_sync(0xFFFFFFFF, sum, by); }
to[lane] = sum;
to[32 + lane] = __shfl_down_sync(0xFFFFFFFF, lane, 3);
to[64 + lane] = __shfl_sync(0xFFFFFFFF, lane, 5);
to[96 + lane] = __ballot_sync(0xFFFFFFFF, lane % 2 == 1);
}"#;
    let mut to = vec![0_u32; 128];
    assert_eq!(run(&format!("typedef unsigned int uint32_t;{kernel}"), 32, 0, [buffer(&mut to)]), Ok(()));
    assert!(to[..32].iter().all(|sum| *sum == 31 * 16));
    assert_eq!((to[32], to[32 + 28], to[32 + 31]), (3, 31, 31));
    assert!(to[64..96].iter().all(|lane| *lane == 5) && to[96..].iter().all(|bits| *bits == 0xAAAA_AAAA));
}

#[test]
fn sums_of_many_threads_are_atomic() {
    let kernel = r#"
extern "C" __global__ void k(float * const __restrict__ to, int * const __restrict__ count) {
float before;
asm volatile("atom.relaxed.add.f32 %0, [%1], %2;" : "=f"(before) : "l"(to), "f"(1.5f) : "memory");
atomicAdd(count, 2);
}"#;
    let (mut to, mut count) = ([0.0_f32], [0_i32]);
    assert_eq!(run(kernel, 100, 0, [buffer(&mut to), buffer(&mut count)]), Ok(()));
    assert_eq!((to, count), ([150.0], [200]));
}

/// All 16-bit numbers survive a conversion to f32 and back, and numbers halfway between two are rounded to the even
/// one.
#[test]
fn small_numbers_are_rounded_as_hardware_does() {
    let kernel = r#"
extern "C" __global__ void k(float const* const from, unsigned short * const half, unsigned short * const bfloat, float * const back) {
for (int n = 0; n < 262144; n++) {
__half const h = __half(from[n]);
half[n] = h.bits;
bfloat[n] = __nv_bfloat16(from[n]).bits;
back[n] = float(h);
}
}"#;
    let numbers = (0..=u16::MAX).flat_map(|bits| {
        let (small, step) = (f16::from_bits(bits).to_f32(), f16::from_bits(bits.wrapping_add(1)).to_f32());
        let wide = bf16::from_bits(bits).to_f32();
        [small, f32::midpoint(small, step), wide, f32::from_bits(wide.to_bits() | 0x8000)]
    });
    let mut from: Vec<f32> = numbers.collect();
    let (mut half, mut bfloat) = (vec![0_u16; from.len()], vec![0_u16; from.len()]);
    let mut back = vec![0.0_f32; from.len()];
    let buffers = [buffer(&mut from), buffer(&mut half), buffer(&mut bfloat), buffer(&mut back)];
    assert_eq!(run(kernel, 1, 0, buffers), Ok(()));
    for (n, value) in from.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
        let expected = (f16::from_f32(*value).to_bits(), bf16::from_f32(*value).to_bits());
        assert_eq!((half[n], bfloat[n]), expected, "{value:e}");
        assert_eq!(back[n].to_bits(), f16::from_f32(*value).to_f32().to_bits(), "{value:e}");
    }
}

/// Products of 16 × 16 and 16 × 8 by `ldmatrix` and `mma.sync`, and of 16 × 16 × 16 by `wmma`.
#[test]
fn warps_multiply_matrices() {
    let kernel = r#"
typedef unsigned int uint32_t;
extern "C" __global__ void k(__half const* const a, __half const* const b, float * const narrow, float * const wide) {
extern __shared__ __align__(16) char s[];
__half *shared = reinterpret_cast<__half *>(&s[0]);
for (uint32_t n = threadIdx.x; n < 256; n += 32) { shared[n] = a[n]; shared[256 + n] = b[n]; }
__syncwarp();
uint32_t const lane = threadIdx.x;
uint32_t const left = __cvta_generic_to_shared(&shared[lane % 16 * 16 + lane / 16 * 8]);
uint32_t const right = __cvta_generic_to_shared(&shared[256 + lane % 16 * 16]);
uint32_t l0, l1, l2, l3, r0, r1;
asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared::cta.b16 {%0, %1, %2, %3}, [%4];" : "=r"(l0), "=r"(l1), "=r"(l2), "=r"(l3) : "r"(left) : "memory");
asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16 {%0, %1}, [%2];" : "=r"(r0), "=r"(r1) : "r"(right) : "memory");
float d0, d1, d2, d3;
asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};" : "=f"(d0), "=f"(d1), "=f"(d2), "=f"(d3) : "r"(l0), "r"(l1), "r"(l2), "r"(l3), "r"(r0), "r"(r1), "f"(0.0f), "f"(0.0f), "f"(0.0f), "f"(0.0f));
float *row = narrow + lane / 4 * 8 + lane % 4 * 2;
row[0] = d0; row[1] = d1; row[64] = d2; row[65] = d3;
nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, __half, nvcuda::wmma::row_major> fa;
nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, __half, nvcuda::wmma::row_major> fb;
nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> fc;
nvcuda::wmma::fill_fragment(fc, 1.0f);
nvcuda::wmma::load_matrix_sync(fa, shared, 16);
nvcuda::wmma::load_matrix_sync(fb, shared + 256, 16);
nvcuda::wmma::mma_sync(fc, fa, fb, fc);
nvcuda::wmma::store_matrix_sync(wide, fc, 16, nvcuda::wmma::mem_row_major);
}"#;
    let number = |n: usize, by: usize| f16::from_f32((n * by % 13) as f32 - 6.0);
    let mut a: Vec<f16> = (0..256).map(|n| number(n, 7)).collect();
    let mut b: Vec<f16> = (0..256).map(|n| number(n, 5)).collect();
    let (mut narrow, mut wide) = (vec![0.0_f32; 128], vec![0.0_f32; 256]);
    let buffers = [buffer(&mut a), buffer(&mut b), buffer(&mut narrow), buffer(&mut wide)];
    assert_eq!(run(kernel, 32, 1024, buffers), Ok(()));
    let product = |row: usize, column: usize| -> f32 {
        (0..16).map(|k| a[row * 16 + k].to_f32() * b[k * 16 + column].to_f32()).sum()
    };
    for row in 0..16 {
        assert!((0..8).all(|column| narrow[row * 8 + column] == product(row, column)), "row {row}");
        assert!((0..16).all(|column| wide[row * 16 + column] == product(row, column) + 1.0), "row {row}");
    }
}

/// Products of 64 × 64 and 64 × 64 by `wgmma`, of matrices that the copy engine brings: the left one from shared memory and from registers,
/// the right one along its sums and across them.
#[test]
fn warpgroups_multiply_what_the_copy_engine_brings() {
    let sums = (0..32).map(|n| format!("\"+f\"(sums[{n}])")).collect::<Vec<_>>().join(", ");
    let multiply = |factors: &str| {
        let name = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16";
        format!("asm volatile(\"{{.reg .pred p; setp.ne.b32 p, 1, 0; {name} …;}}\" : {sums} : {factors});")
    };
    let boxes = "\"l\"(at(left, 32 * k)), \"l\"(at(right, 32 * k)), \"n\"(0), \"n\"(0)";
    let registers =
        "\"r\"(own[0]), \"r\"(own[1]), \"r\"(own[2]), \"r\"(own[3]), \"l\"(at(right, 2048 * k)), \"n\"(1), \"n\"(1)";
    let kernel = r#"
typedef unsigned int u32; typedef unsigned long long u64;
inline u64 at(u32 box, u32 offset) { return u64((box + offset) & 0x3FFFF) >> 4 | u64(1024 >> 4) << 32 | 1ull << 62; }
extern "C" __global__ void k(void const* const a, void const* const b, __half const* const rows, float * const along, float * const across) {
__shared__ __align__(1024) char memory[16384];
__shared__ u64 barrier_memory;
const u32 left = __cvta_generic_to_shared(memory), right = left + 8192, barrier = __cvta_generic_to_shared(&barrier_memory);
if (threadIdx.x == 0) {
asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(barrier), "r"(1) : "memory");
asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(barrier), "r"(16384) : "memory");
asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes …;" : : "r"(left), "l"(a), "r"(barrier), "r"(0), "r"(0), "r"(0) : "memory");
asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes …;" : : "r"(right), "l"(b), "r"(barrier), "r"(0), "r"(0), "r"(0) : "memory");
}
__syncthreads();
u32 done = 0;
while (!done) { asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; …}" : "=r"(done) : "r"(barrier), "r"(0) : "memory"); }
const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
float sums[32] = {};
for (int k = 0; k < 4; k++) { BOXES }
for (int n = 0; n < 32; n++) along[(row + n / 2 % 2 * 8) * 64 + n / 4 * 8 + column + n % 2] = sums[n];
for (int n = 0; n < 32; n++) sums[n] = 0;
for (int k = 0; k < 4; k++) {
u32 own[4];
for (int n = 0; n < 4; n++) own[n] = *reinterpret_cast<const u32 *>(rows + (row + n % 2 * 8) * 64 + 16 * k + n / 2 * 8 + column);
REGISTERS
}
for (int n = 0; n < 32; n++) across[(row + n / 2 % 2 * 8) * 64 + n / 4 * 8 + column + n % 2] = sums[n];
}"#;
    let kernel = kernel.replace("BOXES", &multiply(boxes)).replace("REGISTERS", &multiply(registers));
    let number = |n: usize, by: usize| f16::from_f32((n * by % 13) as f32 - 6.0);
    // Of the left matrix, the last rows are beyond the tensor: they become zeros.
    let mut a: Vec<f16> = (0..64 * 64).map(|n| if n < 60 * 64 { number(n, 7) } else { f16::ZERO }).collect();
    let b: Vec<f16> = (0..64 * 64).map(|n| number(n, 5)).collect();
    let map = |matrix: &[f16], rows| {
        let (address, sizes) = (matrix.as_ptr() as usize, [64, rows, 1]);
        let (strides, window, steps) = ([128, 128 * 64], [64, 64, 1], [1; 3]);
        let (sizes, strides, window, steps) = (&sizes, &strides, &window, &steps);
        Tiled { kind: 6, address, sizes, strides, window, steps, is_interleaved: false, swizzle: 3 }.encoded()
    };
    let mut maps = [map(&a, 60), map(&b, 64)];
    let (mut along, mut across) = (vec![0.0_f32; 64 * 64], vec![0.0_f32; 64 * 64]);
    let [first, second] = maps.each_mut().map(|map| buffer(map));
    let buffers = [first, second, buffer(&mut a), buffer(&mut along), buffer(&mut across)];
    assert_eq!(run(&kernel, 128, 0, buffers), Ok(()));
    let product = |row: usize, right: &dyn Fn(usize) -> f16| -> f32 {
        (0..64).map(|k| a[row * 64 + k].to_f32() * right(k).to_f32()).sum()
    };
    for (row, column) in (0..64).flat_map(|row| (0..64).map(move |column| (row, column))) {
        let at = row * 64 + column;
        assert_eq!(along[at], product(row, &|k| b[column * 64 + k]), "{row}, {column}");
        assert_eq!(across[at], product(row, &|k| b[k * 64 + column]), "{row}, {column}");
    }
}

/// Each thread writes its number and reads its neighbour's.
const NEIGHBOURS: &str = r#"
extern "C" __global__ void k(int * const to) {
extern __shared__ __align__(4) char s[];
int *shared = reinterpret_cast<int *>(&s[0]);
shared[threadIdx.x] = threadIdx.x;
BARRIER
to[blockIdx.x * 8 + threadIdx.x] = shared[(threadIdx.x + 1) % 8];
}"#;
/// Two blocks write to one place.
const BLOCKS: &str = "extern \"C\" __global__ void k(int * const to) { to[threadIdx.x] = blockIdx.x; }";
/// A thread reads beyond the block's shared memory.
const BEYOND: &str = r#"
extern "C" __global__ void k(int * const to) {
extern __shared__ __align__(4) char s[];
to[threadIdx.x] = reinterpret_cast<int *>(&s[0])[8 + threadIdx.x];
}"#;

#[test]
fn sanitizers_find_what_is_wrong_in_a_kernel() {
    let whole = NEIGHBOURS.replace("BARRIER", "__syncthreads();");
    for (sanitizer, library, kernel, expected) in [
        ("thread", "libtsan.so", &*NEIGHBOURS.replace("BARRIER", ""), "ThreadSanitizer: data race"),
        ("thread", "libtsan.so", BLOCKS, "ThreadSanitizer: data race"),
        ("thread", "libtsan.so", &whole, ""),
        ("address", "libasan.so", BEYOND, "AddressSanitizer: heap-buffer-overflow"),
        ("address", "libasan.so", &whole, ""),
    ] {
        let found = Command::new("c++").arg(format!("-print-file-name={library}")).output().expect("a compiler");
        let preload = format!("LD_PRELOAD={}", String::from_utf8_lossy(&found.stdout).trim());
        // ThreadSanitizer needs fixed addresses instead of random ones, and some containers do not permit that.
        let fixed = Command::new("setarch").args(["-R", "true"]).status().is_ok_and(|status| status.success());
        let (program, first): (_, &[_]) = if fixed { ("setarch", &["-R", "env"]) } else { ("env", &[]) };
        let mut child = Command::new(program);
        child.args(first).arg(&preload).arg(std::env::current_exe().expect("a path"));
        child.args(["--exact", "compute::tests::a_kernel_under_a_sanitizer", "--ignored", "--nocapture"]);
        child.env("TSAN_OPTIONS", "ignore_noninstrumented_modules=1").env("ASAN_OPTIONS", "detect_leaks=0");
        let output = child.env("SANITIZER", sanitizer).env("KERNEL", kernel).output().expect("a process");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), expected.is_empty(), "{sanitizer}, {kernel}: {said}");
        assert!(said.contains(expected), "{sanitizer}, {kernel}: {said}");
    }
}

#[test]
#[ignore = "it is the process that another test starts"]
fn a_kernel_under_a_sanitizer() {
    let (Ok(sanitizer), Ok(kernel)) = (std::env::var("SANITIZER"), std::env::var("KERNEL")) else { return };
    let mut to = vec![0_i32; 16];
    assert_eq!(run_on(&kernel, [[2, 1, 1], [8, 1, 1]], 32, [buffer(&mut to)], Some(sanitizer)), Ok(()));
}
