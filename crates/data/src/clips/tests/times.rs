//! Starts and ends of clips, under the names that lists have for them.

use super::*;

#[test]
fn times_are_checked() {
    let folder = two_files();
    for (start, end) in [("-1", ""), ("2", "2"), ("2", "1"), ("", "0"), ("nan", ""), ("inf", "")] {
        let text = format!("audio,text,start,end\na.wav,x,,\na.wav,x,{start},{end}\n");
        folder.fails("m.csv", &text, "line 3 has a segment from");
    }
    folder.fails("m.csv", "audio,text,start,offset\na.wav,x,1,1\n", "has both `offset` and `start`");
    folder.fails("m.jsonl", "{\"audio\": \"a.wav\", \"text\": \"\", \"end\": true}", "true or false in end");
    let annotated = folder.file("m.csv", "audio,text,onset,offset\na.wav,x,0.2,0.9\n");
    assert!(folder.error(&annotated).contains("has `offset` and no `duration`"), "{}", folder.error(&annotated));
    let bounds = |given: &[(&str, &str)]| {
        let columns = given.iter().map(|(field, column)| ((*field).to_owned(), Column::from(*column))).collect();
        let clips = Clips::open(&RecordsConfig { columns, ..annotated.clone() }).unwrap();
        (clips.clip(0).start, clips.clip(0).end)
    };
    assert_eq!(bounds(&[("start", "onset"), ("end", "offset")]), (Some(0.2), Some(0.9)));
    assert_eq!(bounds(&[("offset", "offset")]), (Some(0.9), None));
}

#[test]
fn one_channel_of_a_file_is_read_where_the_list_names_it() {
    let folder = two_files();
    // Two channels of 16 bits: a rising and a constant one.
    let frames: Vec<u8> = (0..16_000_i16).flat_map(|n| [n, -8_000].map(i16::to_le_bytes)).flatten().collect();
    let length = frames.len() as u32;
    let format = b"WAVEfmt \x10\0\0\0\x01\0\x02\0\x80\x3e\0\0\0\xfa\0\0\x04\0\x10\0data";
    let wav = [b"RIFF", &(length + 36).to_le_bytes()[..], format, &length.to_le_bytes(), &frames].concat();
    folder.file("two.wav", wav);
    let list = "audio,text,channel\ntwo.wav,x,0\ntwo.wav,y,1\ntwo.wav,z,\ntwo.wav,z,mixed\na.wav,z,1\n";
    let clips = Clips::open(&folder.file("m.csv", list)).unwrap();
    let sample = |index: usize| (clips.load(index).unwrap()[8_000] * 32_768.0).round();
    assert_eq!([0, 1, 2, 3].map(sample), [8_000.0, -8_000.0, 0.0, 0.0]);
    assert_eq!(clips.load(4).unwrap(), load(&folder.path("a.wav")).unwrap(), "there is only one");
    assert!(clips.key(0) != clips.key(1) && clips.recording(0) == clips.recording(1));
    assert_eq!(clips.clip(1).name, "two.wav channel 1");
    let error = Clips::open(&folder.file("m.csv", "audio,text,channel\ntwo.wav,x,2\n")).unwrap().load(0).unwrap_err();
    assert!(error.to_string().contains("2 channels, counted from 0, and no channel 2"), "{error}");
    // The number of channels is another thing.
    assert!(Clips::open(&folder.file("m.csv", "audio,text,channels\ntwo.wav,x,2\n")).is_ok());
}
