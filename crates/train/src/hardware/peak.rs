//! Peak of a processor, the reference of model FLOPs utilization (MFU; Chowdhery et al., 2022).

use burn::tensor::{DType, Device, Tensor};
use std::time::{Duration, Instant};
use undertone_ops::Compute;

/// Peak of a card in dense matrix products, in 10¹² operations per second.
struct Peak {
    /// Name without vendor, family, and size and kind of memory.
    card: &'static str,
    /// On the CUDA cores.
    f32: f64,
    /// On tensor cores, with f32 in and out; Volta and Turing have none.
    tf32: Option<f64>,
    /// With f16 in and f32 sums. It is also that of bf16, if there is TF32.
    f16: f64,
}

const fn peak(card: &'static str, f32: f64, tf32: f64, f16: f64) -> Peak {
    Peak { card, f32, tf32: Some(tf32), f16 }
}

const fn before_ampere(card: &'static str, f32: f64, f16: f64) -> Peak {
    Peak { card, f32, tf32: None, f16 }
}

/// Values of NVIDIA's data sheets; those "with sparsity" are halved here. GeForce cards multiply f16 with f32 sums at
/// half the rate of f16 sums, and this table has the half.
const PEAKS: [Peak; 22] = [
    // "NVIDIA T4 Tensor Core GPU" (2019): 8.1 single, 65 mixed.
    before_ampere("T4", 8.1, 65.0),
    // "NVIDIA V100 Tensor Core GPU" (2020): PCIe 14 and 112, SXM2 15.7 and 125.
    before_ampere("V100 PCIE", 14.0, 112.0),
    before_ampere("V100 SXM2", 15.7, 125.0),
    // "NVIDIA A10 Tensor Core GPU" (2022): FP32 31.2, TF32 62.5, BF16 125.
    peak("A10", 31.2, 62.5, 125.0),
    // "NVIDIA A100 Tensor Core GPU" (2022): FP32 19.5, TF32 156, BF16 312, in every form.
    peak("A100 PCIE", 19.5, 156.0, 312.0),
    peak("A100 SXM4", 19.5, 156.0, 312.0),
    // "NVIDIA L4 Tensor Core GPU" (2023): FP32 30.3; with sparsity TF32 120, BF16 242.
    peak("L4", 30.3, 60.0, 121.0),
    // "NVIDIA L40S GPU" (2023): FP32 91.6, TF32 183, BF16 362.05.
    peak("L40S", 91.6, 183.0, 362.05),
    // "NVIDIA H100 Tensor Core GPU" (2024): FP32 67 and 60; with sparsity SXM 989 and 1979, NVL 835 and 1671; the PCIe
    // card's sheet (2022) has 51, 756 and 1513.
    peak("H100", 67.0, 494.5, 989.5),
    peak("H100 NVL", 60.0, 417.5, 835.5),
    peak("H100 PCIE", 51.0, 378.0, 756.5),
    // "NVIDIA H200 Tensor Core GPU" (2024): FP32 67 and 60; with sparsity SXM 989 and 1979, NVL 835 and 1671.
    peak("H200", 67.0, 494.5, 989.5),
    peak("H200 NVL", 60.0, 417.5, 835.5),
    // "NVIDIA HGX B200" (2025), eight of them: FP32 600; with sparsity TF32 18,000, BF16 36,000.
    peak("B200", 75.0, 1125.0, 2250.0),
    // "NVIDIA Ampere GA102 GPU Architecture" (2021), appendix A: FP32 and TF32 35.6, BF16 71.
    peak("RTX 3090", 35.6, 35.6, 71.0),
    // "NVIDIA Ada GPU Architecture" (2023), appendix A: FP32 and TF32 82.6 and 48.7, BF16 165.2 and 97.5.
    peak("RTX 4090", 82.6, 82.6, 165.2),
    peak("RTX 4080", 48.7, 48.7, 97.5),
    // The same with 10,240 cores at 2.55 GHz: 2 · 10,240 · 2.55 = 52.2; tensor cores twice that.
    peak("RTX 4080 SUPER", 52.2, 52.2, 104.4),
    // "NVIDIA RTX Blackwell GPU Architecture" (2025), appendix A: FP32 and TF32 104.8 and 56.3, BF16 209.5 and 112.6.
    peak("RTX 5090", 104.8, 104.8, 209.5),
    peak("RTX 5080", 56.3, 56.3, 112.6),
    // NVIDIA's product pages: 4608 and 3840 cores at 2.57 and 2.50 GHz, two operations each; tensor cores twice that, as in
    // the larger cards.
    peak("RTX 5060 TI", 23.7, 23.7, 47.4),
    peak("RTX 5060", 19.2, 19.2, 38.4),
];

/// Returns the peak in floating-point operations per second of dense matrix products in `compute` on the GPU with
/// NVML's name `name`. `None` for a card that is not in the table, or cannot compute in that type.
///
/// ```
/// use undertone_ops::Compute;
/// use undertone_train::peak_flops;
///
/// assert_eq!(peak_flops("NVIDIA A100-SXM4-80GB", Compute::Bf16), Some(312e12));
/// assert_eq!(peak_flops("Tesla T4", Compute::Bf16), None);
/// ```
pub fn peak_flops(name: &str, compute: Compute) -> Option<f64> {
    let card = card(name);
    let peak = PEAKS.iter().find(|peak| peak.card == card)?;
    let tera = match compute {
        Compute::Auto | Compute::F32 => Some(peak.f32),
        Compute::Tf32 => peak.tf32,
        Compute::F16 => Some(peak.f16),
        Compute::Bf16 => peak.tf32.and(Some(peak.f16)),
    };
    tera.map(|tera| tera * 1e12)
}

/// Returns the name of a card in the table: `NVIDIA A100-SXM4-80GB` is `A100 SXM4`. Every other word stays, because a
/// `Laptop GPU` or a slice of a card (`MIG 1g.5gb`) is not the card.
fn card(name: &str) -> String {
    let name = name.to_uppercase();
    let words = name.split([' ', '-']).filter(|word| {
        let memory = word.strip_suffix("GB").is_some_and(|number| number.parse::<u32>().is_ok());
        !memory && !word.starts_with("HBM") && !["", "NVIDIA", "GEFORCE", "TESLA"].contains(word)
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Measures the best rate of three f32 products of 1024 × 1024 matrices on `device`, in floating-point operations per
/// second, as the peak of a processor that is in no table. It takes some hundredths of a second on a CPU. Other load at
/// the time lowers the result. `None` if the device fails.
pub fn measured_peak_flops(device: &Device) -> Option<f64> {
    const SIZE: usize = 1024;
    let matrix = Tensor::<2>::ones([SIZE, SIZE], (device, DType::F32));
    let seconds = |_| {
        device.sync().ok()?;
        let started = Instant::now();
        let product = matrix.clone().matmul(matrix.clone());
        device.sync().ok()?;
        let elapsed = started.elapsed();
        drop(product);
        Some(elapsed)
    };
    // The first product starts threads and allocates memory.
    let times: Vec<Duration> = (0..4).filter_map(seconds).skip(1).collect();
    let best = times.into_iter().min()?.as_secs_f64();
    (best > 0.0).then(|| 2.0 * (SIZE as f64).powi(3) / best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_known_by_the_names_that_nvml_gives_them() {
        for (name, tf32, bf16) in [
            ("NVIDIA A10", 62.5, 125.0),
            ("NVIDIA A100-SXM4-40GB", 156.0, 312.0),
            ("NVIDIA A100 80GB PCIe", 156.0, 312.0),
            ("A100-SXM4-80GB", 156.0, 312.0),
            ("NVIDIA L4", 60.0, 121.0),
            ("NVIDIA L40S", 183.0, 362.05),
            ("NVIDIA H100 80GB HBM3", 494.5, 989.5),
            ("NVIDIA H100 PCIe", 378.0, 756.5),
            ("NVIDIA H200", 494.5, 989.5),
            ("NVIDIA B200", 1125.0, 2250.0),
            ("NVIDIA GeForce RTX 3090", 35.6, 71.0),
            ("NVIDIA GeForce RTX 4080", 48.7, 97.5),
            ("NVIDIA GeForce RTX 4090", 82.6, 165.2),
            ("NVIDIA GeForce RTX 5060", 19.2, 38.4),
            ("NVIDIA GeForce RTX 5080", 56.3, 112.6),
            ("NVIDIA GeForce RTX 5090", 104.8, 209.5),
        ] {
            assert_eq!(peak_flops(name, Compute::Tf32), Some(tf32 * 1e12), "{name}");
            assert_eq!(peak_flops(name, Compute::Bf16), Some(bf16 * 1e12), "{name}");
            assert_eq!(peak_flops(name, Compute::F16), Some(bf16 * 1e12), "{name}");
        }
        for name in ["Tesla T4", "Tesla V100-SXM2-16GB", "Tesla V100-PCIE-32GB"] {
            assert!(peak_flops(name, Compute::F16) > peak_flops(name, Compute::F32), "{name}");
            assert_eq!(peak_flops(name, Compute::Bf16), None, "{name}");
            assert_eq!(peak_flops(name, Compute::Tf32), None, "{name}");
        }
    }

    #[test]
    fn a_card_is_not_taken_for_another_of_its_name() {
        for name in [
            "NVIDIA A10G", "NVIDIA L40", "NVIDIA GeForce RTX 3090 Ti", "NVIDIA GeForce RTX 4090 D",
            "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "",
        ] {
            assert_eq!(peak_flops(name, Compute::F32), None, "{name}");
        }
        assert_eq!(peak_flops("NVIDIA A10", Compute::F32), Some(31.2e12));
    }

    #[test]
    fn every_card_stands_once_by_the_name_it_is_looked_up_by() {
        for (index, peak) in PEAKS.iter().enumerate() {
            assert_eq!(card(peak.card), peak.card);
            assert!(PEAKS[..index].iter().all(|earlier| earlier.card != peak.card), "{}", peak.card);
            assert!(peak.f16 > 1.5 * peak.f32, "{}: half the bits, at least nearly twice the rate", peak.card);
        }
    }

    #[test]
    fn the_measured_peak_is_that_of_a_processor() {
        let flops = measured_peak_flops(&Device::flex()).expect("a rate");
        assert!((1e8..1e15).contains(&flops), "{flops:e}");
    }
}
