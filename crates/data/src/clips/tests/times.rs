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
