//! Opus, which symphonia finds in its containers but does not decode.

use std::ops::Range;

use ropus::{Channels as OpusChannels, DecodeMode, Decoder};
use symphonia::core::audio::{AsGenericAudioBufferRef, AudioBuffer, AudioMut, AudioSpec, GenericAudioBufferRef};
use symphonia::core::codecs::CodecInfo;
use symphonia::core::codecs::audio::well_known::CODEC_ID_OPUS;
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder, FinalizeResult};
use symphonia::core::errors::{Error, Result};
use symphonia::core::packet::PacketRef;

/// Decoder of Opus with one or two channels (RFC 6716), always at 48 kHz.
pub(super) struct OpusDecoder {
    decoder: Decoder,
    layout: OpusChannels,
    gain: i32,
    parameters: AudioCodecParameters,
    channels: usize,
    trims: bool,
    interleaved: Vec<f32>,
    buffer: AudioBuffer<f32>,
}

/// Rate of what is decoded, whatever was encoded.
pub(super) const RATE: u32 = 48_000;
/// Samples of the longest packet, 120 ms.
const LONGEST: usize = RATE as usize * 120 / 1000;
/// Places in the header of RFC 7845: its version, the number of samples before the recording, the gain in 1/256 dB, the family of channel
/// mappings, and of families other than 0 the number of streams. Those of family 0 have one stream.
const VERSION: usize = 8;
const PRE_SKIP: Range<usize> = 10..12;
const GAIN: Range<usize> = 16..18;
const FAMILY: usize = 18;
const STREAMS: usize = 19;

impl OpusDecoder {
    /// Returns a decoder for a track; `trims` as in symphonia's `gapless`.
    ///
    /// # Errors
    /// If the track has more than two channels.
    pub fn new(parameters: &AudioCodecParameters, trims: bool) -> Result<Self> {
        let unsupported = Error::Unsupported("Opus with more than two channels");
        let header = header(parameters);
        let number = |place: Range<usize>| number(parameters, place);
        let layout = parameters.channels.clone().ok_or(Error::Unsupported("Opus without a number of channels"))?;
        let kind = match layout.count() {
            1 => OpusChannels::Mono,
            2 => OpusChannels::Stereo,
            _ => return Err(unsupported),
        };
        let byte = |place: usize| header.and_then(|header| header.get(place)).copied().unwrap_or_default();
        if byte(FAMILY) > 1 || byte(FAMILY) == 1 && byte(STREAMS) != 1 {
            return Err(unsupported);
        }
        let gain = number(GAIN).map_or(0, |gain| i32::from(gain.cast_signed()));
        let decoder = started(kind, gain)?;
        let channels = layout.count();
        let buffer = AudioBuffer::new(AudioSpec::new(RATE, layout), LONGEST);
        let interleaved = vec![0.0; LONGEST * channels];
        Ok(Self { decoder, layout: kind, gain, parameters: parameters.clone(), channels, trims, interleaved, buffer })
    }
}

/// Returns the number of samples that the encoder puts before the recording, at 48 kHz.
pub(super) fn pre_skip(parameters: &AudioCodecParameters) -> u64 {
    number(parameters, PRE_SKIP).map_or(0, u64::from)
}

/// Returns a number of the header. MP4 has a header of its own, of version 0, with the larger byte first.
fn number(parameters: &AudioCodecParameters, place: Range<usize>) -> Option<u16> {
    let header = header(parameters)?;
    let bytes = header.get(place)?.try_into().ok()?;
    Some(if header.get(VERSION) == Some(&0) { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
}

fn header(parameters: &AudioCodecParameters) -> Option<&[u8]> {
    parameters.extra_data.as_deref().filter(|header| header.starts_with(b"OpusHead"))
}

/// Returns a decoder as at the beginning of a stream.
fn started(channels: OpusChannels, gain: i32) -> Result<Decoder> {
    let mut decoder = Decoder::new(RATE, channels).map_err(|_| Error::Unsupported("this layout of Opus"))?;
    decoder.set_gain(gain).map_err(|_| Error::Unsupported("a gain that Opus does not have"))?;
    Ok(decoder)
}

impl AudioDecoder for OpusDecoder {
    fn reset(&mut self) {
        // It began with the same parameters.
        if let Ok(decoder) = started(self.layout, self.gain) {
            self.decoder = decoder;
        }
    }

    fn codec_info(&self) -> &CodecInfo {
        &CodecInfo { short_name: "opus", long_name: "Opus", profiles: &[] }
    }

    fn codec_params(&self) -> &AudioCodecParameters {
        debug_assert_eq!(self.parameters.codec, CODEC_ID_OPUS);
        &self.parameters
    }

    fn decode_ref(&mut self, packet: &PacketRef<'_>) -> Result<GenericAudioBufferRef<'_>> {
        self.buffer.clear();
        // The decoder would make sound up in its place, as for a packet that was lost on its way.
        if packet.data.is_empty() {
            return Err(Error::DecodeError("an empty Opus packet"));
        }
        let decoded = self.decoder.decode_float(packet.data, &mut self.interleaved, DecodeMode::Normal);
        let frames = decoded.map_err(|_| Error::DecodeError("an Opus packet that makes no sense"))?;
        self.buffer.render_uninit(Some(frames));
        for channel in 0..self.channels {
            let samples = self.interleaved.iter().skip(channel).step_by(self.channels);
            for (to, from) in self.buffer.plane_mut(channel).into_iter().flatten().zip(samples) {
                *to = *from;
            }
        }
        if self.trims {
            self.buffer.trim(packet.trim_start.get() as usize, packet.trim_end.get() as usize);
        }
        Ok(self.buffer.as_generic_audio_buffer_ref())
    }

    fn finalize(&mut self) -> FinalizeResult {
        FinalizeResult::default()
    }

    fn last_decoded(&self) -> GenericAudioBufferRef<'_> {
        self.buffer.as_generic_audio_buffer_ref()
    }
}
