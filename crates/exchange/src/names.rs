//! Names of tensors: Hugging Face's paths, and the names in OpenAI's own files, which whisper.cpp has as well.

/// Tensors outside the blocks whose names differ.
const OUTER: [(&str, &str); 7] = [
    ("encoder.embed_positions.weight", "encoder.positional_embedding"),
    ("encoder.layer_norm.weight", "encoder.ln_post.weight"),
    ("encoder.layer_norm.bias", "encoder.ln_post.bias"),
    ("decoder.embed_positions.weight", "decoder.positional_embedding"),
    ("decoder.embed_tokens.weight", "decoder.token_embedding.weight"),
    ("decoder.layer_norm.weight", "decoder.ln.weight"),
    ("decoder.layer_norm.bias", "decoder.ln.bias"),
];

/// Parts of a block.
const PARTS: [(&str, &str); 13] = [
    ("self_attn.q_proj", "attn.query"),
    ("self_attn.k_proj", "attn.key"),
    ("self_attn.v_proj", "attn.value"),
    ("self_attn.out_proj", "attn.out"),
    ("self_attn_layer_norm", "attn_ln"),
    ("encoder_attn.q_proj", "cross_attn.query"),
    ("encoder_attn.k_proj", "cross_attn.key"),
    ("encoder_attn.v_proj", "cross_attn.value"),
    ("encoder_attn.out_proj", "cross_attn.out"),
    ("encoder_attn_layer_norm", "cross_attn_ln"),
    ("fc1", "mlp.0"),
    ("fc2", "mlp.2"),
    ("final_layer_norm", "mlp_ln"),
];

/// Returns OpenAI's name of a tensor, if it has one.
pub(crate) fn of(path: &str) -> Option<String> {
    if path.starts_with("encoder.conv") {
        return Some(path.to_owned());
    }
    if let Some((_, name)) = OUTER.iter().find(|(outer, _)| *outer == path) {
        return Some((*name).to_owned());
    }
    let (side, rest) = path.split_once(".layers.")?;
    let (layer, rest) = rest.split_once('.')?;
    let (part, kind) = rest.rsplit_once('.')?;
    let (_, part) = PARTS.iter().find(|(ours, _)| *ours == part)?;
    Some(format!("{side}.blocks.{layer}.{part}.{kind}"))
}

/// Whether a tensor is the bias of a convolution, which whisper.cpp adds as a matrix of one column.
pub(crate) fn is_conv_bias(name: &str) -> bool {
    name.starts_with("encoder.conv") && name.ends_with(".bias")
}

/// Whether a tensor holds positions.
pub(crate) fn is_positions(name: &str) -> bool {
    name.ends_with(".positional_embedding")
}
