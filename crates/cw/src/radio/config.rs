//! Settings of the effects of a radio path. A pair of numbers is a range: each clip draws its own value from it,
//! uniformly. Keys are the Q-codes of amateur radio: QSB is fading, QRN static, QRM other stations.

use undertone_data::effect;
use undertone_data::random::Range;

effect! {
    /// Drift of the frequency of a carrier or receiver.
    pub struct Drift at "drift" {
        /// Probability that a clip has this effect.
        pub probability: f32 = 0.2, probability();
        /// Steady drift, in hertz per second, upwards or downwards.
        pub hz_per_s: Range = [0.0, 3.0], range(0.0, 50.0) => either_way;
        /// Random walk on top: standard deviation after one second, in hertz.
        pub walk_hz: Range = [0.0, 2.0], range(0.0, 50.0) => between;
    }

    /// Drift of the frequency in one clip.
    pub struct DrawnDrift;
}

effect! {
    /// Slow fading (`qsb`): the carrier's level in decibels follows a sine between 0 and minus the depth.
    pub struct Fading at "qsb" {
        /// Probability that a clip has this effect.
        pub probability: f32 = 0.3, probability();
        /// Depth of the fading, in decibels.
        pub depth_db: Range = [3.0, 15.0], range(0.0, 60.0);
        /// Time from peak to peak, in seconds.
        pub period_s: Range = [2.0, 12.0], range(0.1, 600.0);
    }
}

effect! {
    /// Impulsive static (`qrn`): bursts of noise that start at once and decay.
    pub struct Static at "qrn" {
        /// Probability that a clip has this effect.
        pub probability: f32 = 0.2, probability();
        /// Bursts per second, at random times.
        pub rate_per_s: Range = [0.3, 5.0], range(0.0, 50.0) => between;
        /// Level at the start of a burst relative to the carrier (root mean square each), in decibels.
        pub level_db: Range = [-6.0, 12.0], range(-60.0, 40.0) => between;
        /// Time constant with which a burst decays, in milliseconds.
        pub decay_ms: Range = [0.5, 8.0], range(0.1, 50.0) => between;
    }

    /// Static in one clip.
    pub struct DrawnStatic;
}

effect! {
    /// Interference from other stations (`qrm`).
    pub struct Interference at "qrm" {
        /// Probability that a clip has this effect.
        pub probability: f32 = 0.2, probability();
        /// Minimum and maximum number of stations.
        pub stations: [usize; 2] = [1, 2], count(0, 16);
        /// Distance of their pitch from the wanted one, in hertz, upwards or downwards.
        pub offset_hz: Range = [150.0, 1000.0], range(10.0, 3000.0);
        /// Their speed, in words per minute.
        pub wpm: Range = [15.0, 35.0], range(5.0, 60.0);
        /// Their level relative to the wanted carrier, in decibels.
        pub level_db: Range = [-20.0, 0.0], range(-60.0, 40.0);
    }
}

effect! {
    /// A receiver filter around the wanted pitch. The whole signal passes through it: carrier, noise, static and other
    /// stations. The signal-to-noise ratio is that before the filter.
    pub struct ReceiverFilter at "filter" {
        /// Probability that a clip has this effect.
        pub probability: f32 = 0.3, probability();
        /// Width between the -3 dB points, in hertz.
        pub width_hz: Range = [250.0, 1000.0], range(20.0, 3000.0);
    }
}
