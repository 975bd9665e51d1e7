//! `/v1/images/generations` and `/v1/images/edits`, on a model whose pictures are of one colour.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fake_model::FakeModel as Fake;
use inference_core::{
    CancelToken, Error, GeneratedImage, ImageEvent, ImageFacts, ImageGeneration, ImageModel,
    ImageModelInfo, ImagePhase, ImageRequest, Picture, Result,
};
use inference_server::ImageService;
use serde_json::{Value as Json, json};

use crate::TestServer;
use crate::client::Client;

/// Remembers what it was asked; `slow` ones never end by themselves.
#[derive(Default)]
pub struct Painter {
    info: ImageModelInfo,
    asked: Mutex<Vec<ImageRequest>>,
    ended: Arc<Mutex<Vec<CancelToken>>>,
}

impl Painter {
    /// The prompts that it was asked for.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|request| request.prompt.clone()).collect()
    }
}

impl ImageModel for Painter {
    fn info(&self) -> &ImageModelInfo {
        &self.info
    }

    fn generate(&self, request: &ImageRequest) -> Result<ImageGeneration> {
        request.validate()?;
        let (width, height) = (request.width.unwrap_or(16), request.height.unwrap_or(16));
        if width % 16 != 0 {
            let reason = format!("{width} pixels; the nearest: 16");
            return Err(Error::InvalidOption { option: "width", reason });
        }
        self.asked.lock().unwrap().push(request.clone());
        let (sender, generation) = ImageGeneration::new(&request.cancel);
        let prompt = request.prompt.clone();
        let (seed, partials) = (request.seed, request.partial_images);
        let (cancel, ended) = (request.cancel.clone(), Arc::clone(&self.ended));
        std::thread::spawn(move || {
            sender.send(ImageEvent::Phase(ImagePhase::Denoise));
            while prompt == "slow" && !sender.is_cancelled() {
                std::thread::sleep(Duration::from_millis(5));
            }
            for index in 0..partials {
                let picture =
                    Box::new(Picture::new(width, height, vec![1; width * height * 3]).unwrap());
                sender.send(ImageEvent::Partial { index, picture });
            }
            if prompt == "broken" {
                return sender.finish(Err(Error::Engine("out of paint".into())));
            }
            while prompt == "later" && !sender.is_cancelled() {
                std::thread::sleep(Duration::from_millis(5));
            }
            if sender.is_cancelled() {
                ended.lock().unwrap().push(cancel);
                return sender.finish(Err(Error::Cancelled));
            }
            let picture = Picture::new(width, height, vec![9; width * height * 3]).unwrap();
            let facts =
                ImageFacts { seed, prompt_tokens: 5, image_tokens: 1, ..Default::default() };
            sender.finish(Ok(GeneratedImage { picture, facts }));
        });
        Ok(generation)
    }

    fn close(&self) {}
}

pub fn server() -> (TestServer, Arc<Painter>) {
    let painter = Arc::<Painter>::default();
    let model: Arc<dyn ImageModel> = Arc::clone(&painter) as _;
    let server = TestServer::with(Fake::default(), |config| {
        config.images = Some(ImageService { name: "brush".into(), model });
    });
    (server, painter)
}

fn pixels(data: &Json) -> pictures::Picture {
    let bytes = STANDARD.decode(data["b64_json"].as_str().unwrap()).unwrap();
    pictures::Picture::decode(&bytes, &pictures::Limits::default()).unwrap()
}

#[test]
fn pictures_come_as_base64_with_seeds_that_follow_each_other() {
    let (server, painter) = server();
    let body = json!({"model": "brush", "prompt": "a fox", "n": 2, "size": "32x16", "seed": 7,
        "steps": 3, "guidance": 2.5, "guidance_normalization": 1.5, "guidance_truncation": 0.5,
        "negative_prompt": "dark", "response_format": "b64_json",
        "output_format": "png", "quality": "auto", "background": "opaque", "user": "me"});
    let answer = server.post("/v1/images/generations", &body);
    assert_eq!(answer.status, 200, "{}", answer.json());
    let answer = answer.json();
    let picture = pixels(&answer["data"][1]);
    assert_eq!((picture.width(), picture.height()), (32, 16));
    assert_eq!((&answer["data"][0]["seed"], &answer["data"][1]["seed"]), (&json!(7), &json!(8)));
    assert_eq!(answer["size"], "32x16");
    assert_eq!(
        answer["usage"],
        json!({"input_tokens": 10, "input_tokens_details": {"image_tokens": 0, "text_tokens": 10},
            "output_tokens": 2, "total_tokens": 12})
    );
    let asked = painter.asked.lock().unwrap();
    assert_eq!((asked[0].steps, asked[0].guidance), (Some(3), Some(2.5)));
    assert_eq!(asked[0].guidance_normalization, Some(1.5));
    assert_eq!(asked[0].guidance_truncation, Some(0.5));
    assert_eq!(asked[0].negative_prompt.as_deref(), Some("dark"));
}

#[test]
fn edits_take_data_urls_and_forms() {
    let (server, painter) = server();
    let url = format!("data:image/png;base64,{}", STANDARD.encode(b"one"));
    for image in [json!(url), json!([url]), json!([{"image_url": url}])] {
        let body = json!({"prompt": "darker", "image": image});
        assert_eq!(server.post("/v1/images/edits", &body).status, 200);
    }
    let form = "--x\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\ndarker\r\n--x\r\n\
        Content-Disposition: form-data; name=\"n\"\r\n\r\n1\r\n--x\r\n\
        Content-Disposition: form-data; name=\"image[]\"; filename=\"a\"\r\n\r\none\r\n--x\r\n\
        Content-Disposition: form-data; name=\"image[]\"; filename=\"b\"\r\n\r\ntwo\r\n--x--\r\n";
    let headers = [("content-type", "multipart/form-data; boundary=x")];
    let client = Client::connect(server.address);
    let answer = client.request("POST", "/v1/images/edits", &headers, form);
    assert_eq!(answer.status, 200, "{}", answer.json());
    let asked = painter.asked.lock().unwrap();
    let bytes = |at: usize| -> Vec<&[u8]> { asked[at].images.iter().map(|i| &*i.bytes).collect() };
    assert_eq!(bytes(0), [b"one"]);
    assert_eq!(bytes(3), [b"one", b"two"]);
}

/// The name and the data of each event.
fn events(answer: &crate::client::Answer) -> Vec<(String, Json)> {
    let names = answer.text.lines().filter_map(|line| line.strip_prefix("event: "));
    let data = answer.events().into_iter().map(|data| serde_json::from_str(&data).unwrap());
    names.map(str::to_owned).zip(data).collect()
}

#[test]
fn a_stream_has_partial_pictures_before_each_finished_one() {
    let (server, _) = server();
    let body = json!({"prompt": "a fox", "n": 2, "size": "32x16", "seed": 7, "stream": true,
        "partial_images": 2});
    let told = events(&server.post("/v1/images/generations", &body));
    let partial = |index| ("partial_image", Some(index));
    let expected = [partial(0), partial(1), ("completed", None)].repeat(2);
    let found = told.iter().map(|(name, data)| {
        assert_eq!(data["type"], *name);
        (name.strip_prefix("image_generation.").unwrap(), data["partial_image_index"].as_i64())
    });
    let found: Vec<_> = found.collect();
    assert_eq!(found, expected);
    assert_eq!(pixels(&told[0].1).rgb()[0], 1);
    let done = &told[5].1;
    assert_eq!(pixels(done).rgb()[0], 9);
    assert_eq!((&done["size"], &done["seed"]), (&json!("32x16"), &json!(8)));
    assert_eq!(done["usage"]["total_tokens"], 6);
    assert!(done["created_at"].is_u64() && done["output_format"] == "png");
}

#[test]
fn a_stream_of_an_edit_has_events_of_its_own_in_a_form_too() {
    let (server, _) = server();
    let form = "--x\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\ndarker\r\n--x\r\n\
        Content-Disposition: form-data; name=\"stream\"\r\n\r\ntrue\r\n--x\r\n\
        Content-Disposition: form-data; name=\"partial_images\"\r\n\r\n1\r\n--x\r\n\
        Content-Disposition: form-data; name=\"image\"; filename=\"a\"\r\n\r\none\r\n--x--\r\n";
    let headers = [("content-type", "multipart/form-data; boundary=x")];
    let answer =
        Client::connect(server.address).request("POST", "/v1/images/edits", &headers, form);
    let names: Vec<_> = events(&answer).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["image_edit.partial_image", "image_edit.completed"]);
}

#[test]
fn a_stream_that_fails_before_its_first_event_is_an_error_and_later_one_ends_in_it() {
    let (server, _) = server();
    let broken = |partials| {
        let body = json!({"prompt": "broken", "stream": true, "partial_images": partials});
        server.post("/v1/images/generations", &body)
    };
    let at_once = broken(0);
    assert_eq!(at_once.status, 500);
    assert!(at_once.error("message").contains("out of paint"), "{}", at_once.text);
    let later = broken(1);
    assert_eq!(later.status, 200);
    let told: Vec<Json> =
        later.events().iter().map(|data| serde_json::from_str(data).unwrap()).collect();
    assert_eq!(told.len(), 2);
    assert!(told[1]["error"]["message"].as_str().unwrap().contains("out of paint"), "{}", told[1]);
}

#[test]
fn a_client_that_leaves_a_stream_cancels_its_picture() {
    let (server, painter) = server();
    let body = json!({"prompt": "later", "stream": true, "partial_images": 1}).to_string();
    let mut client = Client::connect(server.address);
    let headers = [("content-type", "application/json")];
    client.send("POST", "/v1/images/generations", &headers, &body);
    client.read_until("partial_image_index");
    assert!(painter.ended.lock().unwrap().is_empty());
    drop(client);
    while painter.ended.lock().unwrap().is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A multipart form of a prompt, a picture, and what `more` has: a name, a file's name or none, and
/// a value.
fn form(more: &[(&str, &str, &str)]) -> String {
    let fields = [("prompt", "", "a"), ("image", "a.png", "one")];
    let own = fields.iter().filter(|own| more.iter().all(|more| more.0 != own.0));
    let part = |(name, file, value): &(&str, &str, &str)| {
        let file = if file.is_empty() { String::new() } else { format!("; filename=\"{file}\"") };
        format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n{value}\r\n")
    };
    own.chain(more).filter(|part| part.2 != "-").map(part).collect::<String>() + "--x--\r\n"
}

#[test]
fn what_cannot_be_done_in_a_form_is_a_400_that_names_the_field() {
    let (server, painter) = server();
    let headers = [("content-type", "multipart/form-data; boundary=x")];
    let send = |body: String| {
        Client::connect(server.address).request("POST", "/v1/images/edits", &headers, &body)
    };
    assert_eq!(send(form(&[])).status, 200, "the form is right but for what is wrong below");
    let bad = [
        ("prompt", "", "-"),
        ("image", "", "-"),
        ("image", "", "no file"),
        ("n", "", "two"),
        ("n", "", "0"),
        ("steps", "", "many"),
        ("seed", "", "-1"),
        ("guidance", "", "high"),
        ("size", "", "10x16"),
        ("stream", "", "yes"),
        ("partial_images", "", "2"),
        ("output_compression", "", "50"),
        ("mask", "m.png", "black"),
        ("colour", "", "red"),
    ];
    for part in bad {
        let answer = send(form(&[part]));
        assert_eq!(answer.status, 400, "{part:?}: {}", answer.text);
        assert_eq!(answer.json()["error"]["param"], part.0, "{part:?}");
    }
    let twice = send(form(&[("seed", "", "1"), ("seed", "", "2")]));
    assert_eq!((twice.status, &twice.json()["error"]["param"]), (400, &json!("seed")));
    assert_eq!(painter.asked().len(), 1);
}

#[test]
fn without_an_image_model_a_request_for_pictures_is_a_400_that_names_the_model() {
    let none = TestServer::start().post("/v1/images/generations", &json!({"prompt": "a"}));
    assert_eq!((none.status, &none.json()["error"]["param"]), (400, &json!("model")));
}

#[test]
fn a_client_that_leaves_cancels_its_picture() {
    let (server, painter) = server();
    let address = server.address;
    let body = json!({"prompt": "slow"}).to_string();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = format!(
        "POST /v1/images/generations HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
    while painter.asked.lock().unwrap().is_empty() {
        std::thread::yield_now();
    }
    drop(stream);
    while painter.ended.lock().unwrap().is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_models_have_the_one_that_makes_pictures() {
    let (server, _) = server();
    let list = server.get("/v1/models").json();
    let ids: Vec<_> = list["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(ids, ["fake", "brush"]);
    assert_eq!(server.get("/v1/models/brush").json()["output_modalities"], json!(["image"]));
}
