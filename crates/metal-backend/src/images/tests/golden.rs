//! The goldens that diffusers made (`tests/fixtures/images/README.md`).

use super::*;

/// A pipeline's goldens.
pub struct Golden {
    pub json: Value,
    files: ModelFiles,
    tensors: Checkpoint,
    name: &'static str,
}

/// One picture of them.
pub struct Case<'a> {
    golden: &'a Golden,
    json: &'a Value,
    pub name: String,
    pub steps: usize,
}

/// The largest distance of two values at the same place.
pub fn farthest(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let far = |(a, b): (&f32, &f32)| if a.is_nan() { f32::INFINITY } else { (a - b).abs() };
    found.iter().zip(expected).map(far).fold(0.0, f32::max)
}

impl Golden {
    pub fn read(name: &'static str) -> Golden {
        let folder = fixtures().join("golden");
        let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).expect("a file");
        let files = ModelFiles::Folder(folder);
        let headers = files.headers_in(&format!("{name}.safetensors")).expect("tensors");
        let tensors = Checkpoint { files: files.clone(), headers, is_unwanted: Default::default() };
        Golden { json: serde_json::from_str(&text).expect("JSON"), files, tensors, name }
    }

    /// Shape and values of a tensor.
    pub fn tensor(&self, name: &str) -> (Vec<i32>, Vec<f32>) {
        let header = self.tensors.headers.get(name).unwrap_or_else(|| panic!("no {name}"));
        let array = self.files.read_tensor(header).expect("a tensor");
        (array.shape().to_vec(), array.to_vec_f32().expect("values"))
    }

    pub fn cases(&self) -> Vec<Case<'_>> {
        let case = |json: &'_ Value| -> (String, usize) {
            let steps = json["steps"].as_u64().expect("a count") as usize;
            (json["name"].as_str().expect("a name").to_owned(), steps)
        };
        let cases = self.json["cases"].as_array().expect("cases").iter();
        cases
            .map(|json| {
                let (name, steps) = case(json);
                Case { golden: self, json, name, steps }
            })
            .collect()
    }

    pub fn case(&self, name: &str) -> Case<'_> {
        self.cases().into_iter().find(|case| case.name == name).expect("a case")
    }

    /// 64 values of an array, or all, against a sample.
    pub fn near(sample: &Value, array: &Array) -> f32 {
        let shape: Vec<i32> = ints(&sample["shape"]);
        assert_eq!(array.shape(), shape);
        let all = array.to_vec_f32().expect("values");
        let expected: Vec<f32> = sample["values"]
            .as_array()
            .expect("values")
            .iter()
            .map(|value| value.as_f64().expect("a number") as f32)
            .collect();
        let at = |k: usize| if all.len() > 64 { k * (all.len() - 1) / 63 } else { k };
        let found: Vec<f32> = (0..expected.len()).map(|k| all[at(k)]).collect();
        farthest(&found, &expected)
    }
}

fn ints<T: TryFrom<i64>>(list: &Value) -> Vec<T> {
    let list = list.as_array().expect("a list").iter();
    list.filter_map(|value| T::try_from(value.as_i64()?).ok()).collect()
}

impl Case<'_> {
    /// Shape and values of one of its tensors.
    pub fn tensor(&self, name: &str) -> (Vec<i32>, Vec<f32>) {
        self.golden.tensor(&format!("{}.{name}", self.name))
    }

    pub fn request(&self) -> ImageRequest {
        let (shape, values) = self.tensor("initial_latents");
        let shape: Vec<usize> = shape.into_iter().map(|size| size as usize).collect();
        let size = |key: &str| self.json[key].as_u64().map(|size| size as usize);
        let text = |key: &str| self.json[key].as_str().map(str::to_owned);
        let number = |key: &str| match &self.json[key] {
            Value::Bool(is_on) => Some(f32::from(*is_on)),
            other => other.as_f64().map(|number| number as f32),
        };
        ImageRequest {
            prompt: text("prompt").expect("a prompt"),
            negative_prompt: text("negative"),
            width: size("width"),
            height: size("height"),
            steps: size("steps"),
            // Without a negative prompt, Qwen-Image has no guidance to weigh.
            guidance: number("guidance").filter(|guidance| self.is_z() || *guidance > 1.0),
            images: self.images(),
            guidance_normalization: number("cfg_normalization"),
            guidance_truncation: number("cfg_truncation"),
            latents: Some(Latents { shape: shape.try_into().expect("four sizes"), values }),
            ..ImageRequest::default()
        }
    }

    fn is_z(&self) -> bool {
        self.golden.name == "z_image"
    }

    fn images(&self) -> Vec<EncodedPicture> {
        let names = self.json["images"].as_array().into_iter().flatten();
        let one = |name: &Value| {
            let name = name.as_str().expect("a name");
            let path = fixtures().join("golden/pictures").join(name);
            EncodedPicture::new(std::fs::read(path).expect("a file"), name)
        };
        names.map(one).collect()
    }

    /// The recorded values under `key`, such as the inputs of the VAE.
    pub fn told(&self, key: &str) -> &Value {
        &self.json[key]
    }

    /// The ids of the prompt and of the negative one.
    pub fn ids(&self) -> (Vec<u32>, Option<Vec<u32>>) {
        let all = self.json["text_encoder"].as_array().expect("prompts");
        let of = |which: &str| {
            all.iter().find(|entry| entry["which"] == which).map(|entry| ints(&entry["ids"]))
        };
        (of("prompt").expect("a prompt"), of("negative_prompt"))
    }

    /// Width, height and bytes of the last picture.
    pub fn picture(&self) -> (usize, usize, Vec<u8>) {
        let name = self.json["png"].as_str().expect("a name");
        let bytes = std::fs::read(fixtures().join("golden").join(name)).expect("a file");
        let limits = pictures::Limits::default();
        let picture = pictures::Picture::decode(&bytes, &limits).expect("a PNG");
        (picture.width() as usize, picture.height() as usize, picture.rgb().to_vec())
    }
}
