//! `serve`: what clients of its endpoint get, what is refused, and the page in a browser.

use serde_json::{Value, json};
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use undertone::ops::DeviceSpec;
use undertone_serve::{Library, Limits, Server};
use undertone_testing::skipped;
use undertone_tests::http::{Browser, Serving, form, read};
use undertone_tests::runs::two_tasks;
use undertone_tests::{Place, wav, write_model};

/// Three seconds of Morse by ebook2cw.
fn morse() -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/ebook2cw/clip00.mp3")).expect("a recording")
}

fn serve(place: &Place, more: &[&str]) -> Serving {
    let args = [&["serve", "--port", "0"], more].concat();
    Serving::start(&mut place.xtask(&args), "http://")
}

#[test]
fn clients_of_openai_get_the_text_that_transcribe_prints() {
    let place = Place::default();
    place.write("clip.mp3", morse());
    let text = place.run(&["transcribe", "clip.mp3"]).succeeded().stdout;
    let server = serve(&place, &[]);
    let ask = |fields: &[(&str, &str)]| {
        let all = [&[("model", "whisper-1")], fields].concat();
        server.form("/v1/audio/transcriptions", "clip.mp3", &morse(), &all)
    };
    let models = server.get("/v1/models").json();
    assert_eq!(models["data"][0]["id"], "whisper-nano-cw-wide", "{models}");
    assert_eq!(server.get("/v1/models/whisper-1").json()["id"], "whisper-1", "the first model's other name");

    assert_eq!(ask(&[]).json(), json!({"text": text.trim_end()}));
    assert_eq!(ask(&[("response_format", "text")]).body, text);
    let subtitles = ask(&[("response_format", "srt")]);
    assert!(subtitles.body.starts_with("1\n00:00:0") && subtitles.body.contains(" --> "), "{subtitles:?}");
    assert!(ask(&[("response_format", "vtt")]).body.starts_with("WEBVTT\n\n00:"));
    let verbose = ask(&[("response_format", "verbose_json"), ("temperature", "0")]).json();
    assert_eq!((verbose["text"].as_str(), verbose["task"].as_str()), (Some(text.trim_end()), Some("transcribe")));
    let segment = &verbose["segments"][0];
    for key in ["id", "seek", "start", "end", "text", "tokens", "temperature", "avg_logprob", "compression_ratio"] {
        assert!(!segment[key].is_null(), "{key} is missing: {verbose}");
    }
    assert!(verbose["duration"].as_f64().is_some_and(|seconds| seconds > 1.0), "{verbose}");

    let events = ask(&[("stream", "true")]).body;
    let events: Vec<Value> = events
        .lines()
        .filter_map(|l| l.strip_prefix("data: "))
        .map(|e| serde_json::from_str(e).expect("JSON"))
        .collect();
    let deltas: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!((deltas.as_str(), &events[events.len() - 1]["text"]), (text.trim_end(), &json!(text.trim_end())));

    // What a page elsewhere would need to read an answer is never sent.
    let page = server.get("/");
    assert!(page.body.contains("<title>Undertone</title>") && !page.head.to_lowercase().contains("access-control"));
}

#[test]
fn words_of_speech_have_times_for_clients() {
    let place = Place::default();
    write_model(&place.path("model"));
    let server = serve(&place, &["--model", "model"]);
    let hum: Vec<f32> = (0..24_000).map(|n| 0.3 * (n as f32 * 0.2).sin()).collect();
    let fields = [("model", "model"), ("response_format", "verbose_json"), ("timestamp_granularities[]", "word")];
    let found = server.form("/v1/audio/transcriptions", "hum.wav", &wav(&hum), &fields);
    assert_eq!(found.status, 200, "{found:?}");
    assert!(found.json().get("segments").is_none(), "words alone were asked for: {found:?}");
    assert!(found.json()["words"].is_array(), "{found:?}");
    // A Morse model has none, and an empty element of a list is none.
    let fields = [
        ("model", "whisper-1"),
        ("response_format", "verbose_json"),
        ("timestamp_granularities[]", ""),
        ("timestamp_granularities[]", "word"),
    ];
    let morse = serve(&Place::default(), &[]).form("/v1/audio/transcriptions", "clip.mp3", &morse(), &fields);
    assert_eq!((morse.status, &morse.json()["words"]), (200, &json!([])), "{morse:?}");
}

#[test]
fn what_cannot_be_answered_is_said_in_a_sentence_and_a_status() {
    let place = Place::default();
    let server = serve(&place, &["--max-upload", "1", "--max-minutes", "1"]);
    let short = wav(&[0.1; 1600]);
    let long = wav(&vec![0.0; 61 * 16_000])[..(1 << 20) - 1000].to_vec();
    let slow = {
        // A minute and a second in few bytes: 8 kHz, 8 bits.
        let mut bytes =
            b"RIFF\xff\xff\xff\x7fWAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0data".to_vec();
        bytes.extend(u32::to_le_bytes(61 * 8000));
        bytes.extend(vec![128; 61 * 8000]);
        bytes
    };
    for (fields, recording, status, culprit) in [
        (&[][..], &short[..], 400, "no `model`"),
        (&[("model", "no-such")], &short, 404, "no-such"),
        (&[("model", "../model")], &short, 404, "../model"),
        (&[("model", "whisper-1"), ("response_format", "docx")], &short, 400, "docx"),
        (&[("model", "whisper-1"), ("temperature", "3")], &short, 400, "temperature"),
        (&[("model", "whisper-1"), ("volume", "11")], &short, 400, "`volume`"),
        (&[("model", "whisper-1"), ("stream", "maybe")], &short, 400, "maybe"),
        (&[("model", "whisper-1"), ("prompt", "TEXT")], &short, 400, "prompt"),
        (&[("model", "whisper-1"), ("timestamp_granularities[]", "word")], &short, 400, "verbose_json"),
        (&[("model", "no-such"), ("stream", "true")], &short, 404, "no-such"),
        (&[("model", "whisper-1")], b"no audio at all", 400, "recording.bin"),
        (&[("model", "whisper-1")], b"", 400, "empty"),
        (&[("model", "whisper-1")], &slow, 413, "longer than 60 s"),
        (&[("model", "whisper-1")], &vec![0; 3 << 20], 413, "MiB"),
    ] {
        let answer = server.form("/v1/audio/transcriptions", "recording.bin", recording, fields);
        assert_eq!(answer.status, status, "{fields:?}: {answer:?}");
        assert!(answer.message().contains(culprit), "{culprit}: {answer:?}");
    }
    assert!(long.len() < 1 << 20);
    let translated = server.form("/v1/audio/translations", "recording.wav", &short, &[("model", "whisper-1")]);
    assert!(translated.status == 400 && translated.message().contains("translation"), "{translated:?}");
    let no_form = server.send("POST", "/v1/audio/transcriptions", &[("Content-Type", "multipart/form-data")], b"");
    assert!(no_form.status == 400 && no_form.message().contains("not a form"), "{no_form:?}");
    for (method, path, headers, body, status) in [
        ("GET", "/etc/passwd", &[][..], &b""[..], 404),
        ("GET", "/api/runs/..%2F..%2Fetc", &[], b"", 404),
        ("GET", "/v1/audio/transcriptions", &[], b"", 405),
        ("POST", "/v1/audio/transcriptions", &[], b"{}", 400),
        ("POST", "/api/predict", &[], b"{\"model\": 3}", 400),
        ("POST", "/api/predict", &[], b"{\"model\": \"whisper-nano-cw-wide\", \"text\": \"a\"}", 400),
        ("GET", "/", &[("Host", "example.org")], b"", 403),
        ("GET", "/api/models", &[("Origin", "http://example.org")], b"", 403),
    ] {
        let answer = server.send(method, path, headers, body);
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
    }
    // None of it ended the server.
    assert_eq!(server.get("/api/models").json()[0]["reader"], "cw");
}

#[test]
fn beyond_this_machine_a_token_is_needed_and_printed() {
    let place = Place::default();
    let server = serve(&place, &["--host", "0.0.0.0"]);
    let token = server.said.split("#token=").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("a token");
    assert_eq!(token.len(), 32, "{token}");
    assert_eq!((server.get("/").status, server.get("/v1/models").status), (200, 401));
    let bearer = format!("Bearer {token}");
    assert_eq!(server.send("GET", "/v1/models", &[("Authorization", &bearer)], &[]).status, 200);
    // A client that sends everything before it reads sees the answer, too.
    let mut stream = TcpStream::connect(&server.authority).expect("connected");
    let body = vec![b'x'; 16 << 20];
    let head = format!("POST /v1/audio/transcriptions HTTP/1.1\r\nHost: {}\r\nConnection: close", server.authority);
    let head = format!("{head}\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)).expect("all of it is taken");
    assert_eq!(read(stream).status, 401);
    let place = Place::default();
    place.run(&["serve", "--model", "no-such"]).assert_refusal(&["no-such"]);
    place
        .run(&["serve", "--model", "whisper-nano-cw", "--model", "whisper-nano-cw"])
        .assert_refusal(&["whisper-nano-cw"]);
    let port = server.authority.rsplit_once(':').expect("a port").1;
    place.run(&["serve", "--host", "0.0.0.0", "--port", port]).assert_refusal(&[port, "--port"]);
}

#[test]
#[cfg(unix)]
fn ctrl_c_ends_it_with_success() {
    let place = Place::default();
    let mut server = serve(&place, &[]);
    undertone_tests::runs::send("-INT", server.process());
    assert_eq!(server.process().wait().expect("an end").code(), Some(0));
}

/// Serves in this process, with limits that the command line has no arguments for.
fn in_this_process(limits: Limits) -> (Arc<AtomicBool>, std::thread::JoinHandle<()>, String) {
    undertone::register().expect("registered");
    let library = Library::new(&["whisper-nano-cw".into()], Path::new("no-runs"), DeviceSpec::Cpu).expect("a library");
    let server = Server::bind("127.0.0.1:0".parse().expect("an address"), library, limits, None).expect("a server");
    let address = server.url().trim_start_matches("http://").trim_end_matches('/').to_owned();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let thread = std::thread::spawn(move || server.run(|| stopped.load(Ordering::Relaxed)).expect("an end"));
    (stop, thread, address)
}

#[test]
fn clients_that_hang_or_are_too_many_are_answered_too() {
    let limits = Limits { waiting: 0, idle: Duration::from_millis(300), ..Limits::default() };
    let (stop, thread, address) = in_this_process(limits);
    let begin = |content: &[u8], length: usize| {
        let mut stream = TcpStream::connect(&address).expect("connected");
        let head = format!(
            "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n\
             Content-Type: {}\r\n\r\n",
            form("", b"", &[]).0
        );
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(content)).expect("sent");
        stream
    };
    // One hangs in the middle of its recording, and takes the only place.
    let (_, body) = form("clip.mp3", &morse(), &[("model", "whisper-1")]);
    let hanging = begin(&body[..500], body.len());
    std::thread::sleep(Duration::from_millis(100));
    let late = read(begin(&body, body.len()));
    assert_eq!(late.status, 503, "{late:?}");
    assert!(late.head.to_lowercase().contains("retry-after: 5"), "{late:?}");
    let given_up = read(hanging);
    assert_eq!(given_up.status, 408, "{given_up:?}");
    assert_eq!(read(begin(&body, body.len())).status, 200);
    stop.store(true, Ordering::Relaxed);
    thread.join().expect("no panic");
}

#[test]
fn a_run_answers_by_its_router_and_by_each_of_its_tasks() {
    let place = Place::default();
    place.write("two.yaml", two_tasks());
    let server = serve(&place, &[]);
    let entry = || server.get("/api/models").json().as_array().expect("a list").get(1).cloned();
    assert_eq!(entry(), None, "there is no run yet");
    place.train("two.yaml", &["--phase", "1"]).succeeded();
    let found = entry().expect("a run");
    assert_eq!((&found["tasks"], &found["has_router"]), (&json!(["low", "high"]), &json!(false)));
    let listed = server.get("/v1/models").json();
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1), "a request cannot choose one of two tasks: {listed}");
    place.train("two.yaml", &["--phase", "2"]).succeeded();
    assert_eq!(entry().expect("a run")["has_router"], true);

    place.write("hum.wav", wav(&[0.1; 16_000]));
    let hum = place.bytes("hum.wav");
    let last = |fields: &[(&str, &str)]| {
        let answer = server.form("/api/transcribe", "hum.wav", &hum, fields);
        serde_json::from_str::<Value>(answer.body.lines().last().expect("a line")).expect("JSON")
    };
    let routed = last(&[("model", "two")]);
    let printed = place.run(&["predict", "--run", "runs/two", "--audio", "hum.wav", "--format", "json"]).succeeded();
    assert_eq!(routed["predictions"][0], printed.json());
    for task in ["low", "high"] {
        let answer = last(&[("model", "two"), ("task", task)]);
        let printed = place.run(&["transcribe", "--model", "runs/two", "--task", task, "hum.wav"]).succeeded().stdout;
        assert_eq!(answer["transcript"]["text"].as_str(), Some(printed.trim_end()), "{answer}");
    }
    let refused = last(&[("model", "two"), ("task", "middle")]);
    assert!(refused["message"].as_str().is_some_and(|text| text.contains("middle")), "{refused}");
    let refused = last(&[("model", "two"), ("language", "de")]);
    assert!(refused["message"].as_str().is_some_and(|text| text.contains("no language")), "{refused}");
    // A model that is trained further is another one.
    let of_low = || last(&[("model", "two"), ("task", "low")]);
    let before = of_low();
    let description = place.path("runs/two/phase2/best/dynamo.json");
    std::fs::write(&description, "no description").expect("written");
    let damaged = of_low();
    assert!(before["message"].is_null() && damaged["message"].is_string(), "{damaged}");
    let run = server.get("/api/runs/two").json();
    assert_eq!((&run["run"], &run["stage"], &run["state"]), (&json!("two"), &json!("phase2"), &json!("finished")));
    assert!(run["curves"].as_array().is_some_and(|curves| curves.iter().any(|c| c["name"] == "loss")), "{run}");
}

#[test]
fn the_page_shows_a_recording_and_a_run_in_a_browser() {
    let place = Place::default();
    place.write("clip.mp3", morse());
    place.write_experiment("synth: cw, cw: {duration_s: [2, 2]}");
    place.train("tiny.yaml", &[]).succeeded();
    let text = place.run(&["transcribe", "clip.mp3"]).succeeded().stdout;
    let Some(browser) = Browser::start(&place.path("tmp")) else {
        return skipped("there is no chromium with its chromedriver");
    };
    let server = serve(&place, &[]);
    browser.open(&format!("http://{}/", server.authority));
    browser.wait_until("return document.querySelectorAll('#model option').length > 0");
    browser.type_into("#file", &place.path("clip.mp3").display().to_string());
    browser.wait_until("return document.getElementById('status').textContent.includes(' read in ')");
    let shown = browser.run("return [...document.querySelectorAll('.word')].map((word) => word.textContent).join('')");
    let without_spaces = |text: &str| text.split_whitespace().collect::<String>();
    assert_eq!(without_spaces(shown.as_str().expect("a text")), without_spaces(&text));
    // Something is drawn, and the keying below the waveform.
    let inked = "const c = document.getElementById('wave'); const d = c.getContext('2d').getImageData(0, c.height * 0.85, \
                 c.width, c.height * 0.1).data; return d.some((value) => value > 0)";
    assert_eq!(browser.run(inked), Value::Bool(true));
    browser.run("document.getElementById('tab-runs').click()");
    browser.wait_until("return document.querySelectorAll('#curves figure').length > 0");
    let row = browser.run("return document.querySelector('#run-list tbody').innerText");
    assert!(row.as_str().is_some_and(|row| row.contains("finished")), "{row}");
    let errors = browser.run("return document.getElementById('status').className");
    assert_eq!(errors, "", "the page complains");
    assert!(browser.screenshot().len() > 10_000);
}
