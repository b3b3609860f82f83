//! Names of tensors: Hugging Face's paths, and variables of CTranslate2, which keeps projections of one input as one matrix.

/// Place of a tensor: a variable, or one of several equal parts of its rows.
#[derive(Debug, PartialEq, Eq)]
pub struct Place {
    pub variable: String,
    pub part: usize,
    pub parts: usize,
}

/// Parts of a block: the variable, the part of it, and the number of parts.
const MAPS: [(&str, &str, usize, usize); 10] = [
    ("self_attn.q_proj", "self_attention/linear_0", 0, 3),
    ("self_attn.k_proj", "self_attention/linear_0", 1, 3),
    ("self_attn.v_proj", "self_attention/linear_0", 2, 3),
    ("self_attn.out_proj", "self_attention/linear_1", 0, 1),
    ("encoder_attn.q_proj", "attention/linear_0", 0, 1),
    ("encoder_attn.k_proj", "attention/linear_1", 0, 2),
    ("encoder_attn.v_proj", "attention/linear_1", 1, 2),
    ("encoder_attn.out_proj", "attention/linear_2", 0, 1),
    ("fc1", "ffn/linear_0", 0, 1),
    ("fc2", "ffn/linear_1", 0, 1),
];

const NORMS: [(&str, &str); 4] = [
    ("layer_norm", "layer_norm"),
    ("self_attn_layer_norm", "self_attention/layer_norm"),
    ("encoder_attn_layer_norm", "attention/layer_norm"),
    ("final_layer_norm", "ffn/layer_norm"),
];

/// Returns the place of a tensor, if there is one.
pub fn place(path: &str) -> Option<Place> {
    let whole = |variable: String| Some(Place { variable, part: 0, parts: 1 });
    let (module, kind) = path.rsplit_once('.')?;
    let (side, module) = module.split_once('.')?;
    let (block, module) = match module.strip_prefix("layers.") {
        Some(rest) => {
            let (layer, module) = rest.split_once('.')?;
            (format!("{side}/layer_{layer}"), module)
        }
        None => (side.to_owned(), module),
    };
    if let Some((_, norm)) = NORMS.iter().find(|(name, _)| *name == module) {
        return whole(format!("{block}/{norm}/{}", if kind == "weight" { "gamma" } else { "beta" }));
    }
    if let Some((_, map, part, parts)) = MAPS.iter().find(|(name, ..)| *name == module) {
        return Some(Place { variable: format!("{block}/{map}/{kind}"), part: *part, parts: *parts });
    }
    match module {
        "embed_positions" => whole(format!("{side}/position_encodings/encodings")),
        "embed_tokens" => whole(format!("{side}/embeddings/{kind}")),
        "conv1" | "conv2" => whole(format!("{side}/{module}/{kind}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_parts_of_variables() {
        let cases = [
            ("encoder.layers.3.self_attn.v_proj.bias", "encoder/layer_3/self_attention/linear_0/bias", 2, 3),
            ("decoder.layers.0.encoder_attn.k_proj.weight", "decoder/layer_0/attention/linear_1/weight", 0, 2),
            ("decoder.layers.0.final_layer_norm.weight", "decoder/layer_0/ffn/layer_norm/gamma", 0, 1),
            ("decoder.layer_norm.bias", "decoder/layer_norm/beta", 0, 1),
            ("decoder.embed_tokens.weight", "decoder/embeddings/weight", 0, 1),
            ("encoder.embed_positions.weight", "encoder/position_encodings/encodings", 0, 1),
            ("encoder.conv2.bias", "encoder/conv2/bias", 0, 1),
        ];
        for (path, variable, part, parts) in cases {
            assert_eq!(place(path), Some(Place { variable: variable.into(), part, parts }), "{path}");
        }
        assert_eq!(place("model.encoder.conv2.bias"), None);
        assert_eq!(place("weight"), None);
    }
}
