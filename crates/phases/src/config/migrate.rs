//! Translation of keys of earlier versions.
//!
//! In these, all keys of a section stood side by side, whether or not the kind that was chosen had them. The tables say where each of
//! them stands now. A key that has no effect is left out if it has its earlier default, and refused otherwise.

use super::ConfigError;
use super::choices::{Choice, OF_TASKS, OF_TRAIN, OTHERS, TRAIN, named, tasks_mut};
use super::keys::{dict_mut, find, find_mut, insert, join, remove, same, text};
use figment::value::{Dict, Empty, Tag, Value};

/// Keys of an earlier version that moved to a choice.
struct Move {
    /// Path of the map that they stood in.
    from: &'static str,
    /// Key, its earlier default as JSON, and its new name.
    keys: &'static [(&'static str, &'static str, &'static str)],
    /// Choices that have the keys now, each with the kinds that have them.
    to: &'static [(&'static str, &'static [&'static str])],
    /// Why a key has no effect with another kind, and the way out.
    rule: &'static str,
}

const COUNTED: &[&str] = &["skip", "rollback"];

/// Moves within `train` sections.
const MOVES_OF_TRAIN: [Move; 6] = [
    Move {
        from: "optimizer.adafactor",
        keys: &[
            ("beta1", "null", "beta1"),
            ("decay_rate", "-0.8", "decay_rate"),
            ("epsilon1", "1e-30", "epsilon1"),
            ("epsilon2", "0.001", "epsilon2"),
            ("clip_threshold", "1.0", "clip_threshold"),
            ("scale_parameter", "false", "scale_parameter"),
        ],
        to: &[("optimizer", &["adafactor"])],
        rule: "it is for `optimizer.name: adafactor`: leave it out",
    },
    Move {
        from: "optimizer",
        keys: &[("decay_share", "0.2", "decay_share")],
        to: &[("optimizer.schedule", &["wsd"])],
        rule: "it is for `optimizer.schedule: wsd`: leave it out",
    },
    Move {
        from: "optimizer",
        keys: &[("base_batch", "null", "base_batch")],
        to: &[("optimizer.lr_scaling", &["linear", "sqrt"])],
        rule: "it is for `optimizer.lr_scaling`: give that, `linear` or `sqrt`, or leave it out",
    },
    Move {
        from: "loss_scale",
        keys: &[("initial", "65536", "initial_scale"), ("growth_interval", "2000", "growth_interval")],
        to: &[("compute", &["auto", "f16"])],
        rule: "it is for `compute: f16`: leave it out",
    },
    Move {
        from: "guard",
        keys: &[("spike_factor", "10", "factor")],
        to: &[("guard.on_spike", &["warn", "skip", "rollback"])],
        rule: "`guard.on_spike: ignore` does not look at it: leave it out",
    },
    Move {
        from: "guard",
        keys: &[("limit", "5", "limit")],
        to: &[("guard.on_nan", COUNTED), ("guard.on_spike", COUNTED)],
        rule: "it counts skips and rollbacks: give `guard.on_nan` or `guard.on_spike` one of these, or leave it out",
    },
];

/// Moves outside `train` sections.
const OTHER_MOVES: [Move; 3] = [
    Move {
        from: "data.cache",
        keys: &[("max_bytes", "20000000000", "max_bytes")],
        to: &[("data.cache", &["audio", "features", "encoder"])],
        rule: "`data.cache.what` is off, so that it has no effect: set the one to `audio`, `features` or `encoder`, or leave the other out",
    },
    Move {
        from: "router",
        keys: &[("top_k", "2", "k")],
        to: &[("router.gates", &["top_k"]), ("phases.2.gates", &["top_k"]), ("phases.3.gates", &["top_k"])],
        rule: "it has no effect, for no `gates` are `top_k`: change that, or leave it out",
    },
    Move {
        from: "phases.3.gumbel",
        keys: &[
            ("temperature", "1", "temperature"),
            ("decay", "0.95", "decay"),
            ("every", "10", "every"),
            ("floor", "0.1", "floor"),
        ],
        to: &[("phases.2.gates", &["gumbel"]), ("phases.3.gates", &["gumbel"])],
        rule: "`phases.3.gumbel` has no effect, for neither phase has `gates: gumbel`: change that, or leave it out",
    },
];

/// Keys that every optimizer had, whichever it was, with their defaults.
const OF_ADAMW: [(&str, &str); 3] = [("beta1", "0.9"), ("beta2", "0.98"), ("epsilon", "1e-8")];

/// Keys of early stopping that have no effect without patience, with their defaults.
const OF_PATIENCE: [(&str, &str); 3] = [("metric", "null"), ("greater_is_better", "null"), ("min_delta", "0")];

/// Translates the layers of a configuration, lowest first. Returns the paths of the earlier keys in each of them.
pub(super) fn migrate(layers: &mut [Dict]) -> Result<Vec<Vec<String>>, ConfigError> {
    let all = layers.to_vec();
    layers.iter_mut().map(|layer| migrate_layer(layer, &all)).collect()
}

fn migrate_layer(layer: &mut Dict, all: &[Dict]) -> Result<Vec<String>, ConfigError> {
    let mut found = Vec::new();
    for (section, bases) in TRAIN {
        let prefixes: Vec<&str> = std::iter::once(section).chain(bases.iter().copied()).collect();
        let mut train = Section { keys: layer, path: section, all, prefixes: &prefixes, found: &mut found };
        train.translate_train().map_err(|refused| {
            let part = if section == "train" { String::new() } else { format!("`{section}`: ") };
            ConfigError::Value(format!("{part}{}", refused.in_train()))
        })?;
    }
    for task in tasks_mut(layer) {
        let name = task.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let before = found.len();
        if let Some(keys) = task.get_mut("train").and_then(dict_mut) {
            let mut train = Section { keys, path: "", all, prefixes: OF_TASKS, found: &mut found };
            train
                .translate_train()
                .map_err(|refused| ConfigError::Value(format!("task `{name}`: `train`: {}", refused.in_train())))?;
        }
        found[before..].iter_mut().for_each(|path| *path = format!("tasks.{name}.train.{path}"));
    }
    let mut others = Section { keys: layer, path: "", all, prefixes: &[""], found: &mut found };
    others.translate(&OTHER_MOVES, &OTHERS).map_err(|refused| ConfigError::Value(refused.sentence("")))?;
    Ok(found)
}

/// A section of a layer.
struct Section<'a> {
    keys: &'a mut Dict,
    /// Path of the section in the layer.
    path: &'a str,
    /// All layers, as they were.
    all: &'a [Dict],
    /// Paths where layers name its choices: its own, then those of the sections that it changes.
    prefixes: &'a [&'a str],
    /// Paths of earlier keys.
    found: &'a mut Vec<String>,
}

/// A key without effect.
struct Refused {
    key: String,
    value: String,
    rule: &'static str,
}

impl Refused {
    fn new(key: String, value: &Value, rule: &'static str) -> Self {
        Self { key, value: text(value), rule }
    }

    fn in_train(&self) -> String {
        self.sentence("train.")
    }

    fn sentence(&self, prefix: &str) -> String {
        format!("`{prefix}{}` is {}: {}", self.key, self.value, self.rule)
    }
}

impl Section<'_> {
    fn translate_train(&mut self) -> Result<(), Refused> {
        self.translate_optimizer()?;
        self.translate(&MOVES_OF_TRAIN, &OF_TRAIN)?;
        self.translate_early_stopping()
    }

    /// Moves keys to the choices that have them.
    fn translate(&mut self, moves: &[Move], choices: &[Choice]) -> Result<(), Refused> {
        let places = moves.iter().flat_map(|one| one.keys.iter().map(move |key| (one, key)));
        for (Move { from, to, rule, .. }, (old, usual, new)) in places {
            let key = join(from, old);
            let Some(value) = find(self.keys, &join(self.path, &key)).cloned() else { continue };
            let homes = to.iter().filter_map(|(path, kinds)| {
                let choice = choices.iter().find(|choice| choice.path == *path)?;
                let kind = self.kind(choice);
                kinds.contains(&kind.as_deref().unwrap_or(choice.usual)).then_some((choice, kind))
            });
            let homes: Vec<(&Choice, Option<String>)> = homes.collect();
            if homes.iter().any(|(choice, _)| join(choice.path, new) == key) {
                continue;
            }
            if homes.is_empty() && !same(&value, &json(usual)) {
                return Err(Refused::new(key, &value, rule));
            }
            self.take(&key);
            for (choice, kind) in homes {
                self.put(choice, kind.as_deref(), new, &value);
            }
        }
        // Of maps that are no more, an empty one says nothing.
        let gone = moves
            .iter()
            .filter(|one| one.to.iter().all(|(path, _)| !format!("{path}.").starts_with(&format!("{}.", one.from))));
        for Move { from, .. } in gone {
            if let Some(Value::Dict(_, left)) = find(self.keys, &join(self.path, from))
                && left.is_empty()
            {
                self.take(from);
            }
        }
        Ok(())
    }

    /// Earlier, every optimizer had AdamW's keys, and those of registered ones stood under `options`.
    fn translate_optimizer(&mut self) -> Result<(), Refused> {
        let kind = self.kind(&OF_TRAIN[0]).unwrap_or_else(|| OF_TRAIN[0].usual.to_owned());
        let built_in = ["adamw", "adafactor"].contains(&kind.as_str());
        let own = |key: &str| find(self.keys, &join(self.path, &format!("optimizer.{key}"))).cloned();
        let marks: &[&str] = if built_in { &["adafactor", "beta2", "epsilon"] } else { &["adafactor", "options"] };
        if kind != "adamw" && marks.iter().any(|mark| own(mark).is_some()) {
            let given = OF_ADAMW.map(|(key, usual)| (key, own(key), json(usual)));
            for (key, value, usual) in given {
                let Some(value) = value else { continue };
                let key = format!("optimizer.{key}");
                if same(&value, &usual) {
                    self.take(&key);
                } else if built_in {
                    let rule = "it is for AdamW, and Adafactor has keys of its own: leave it out";
                    return Err(Refused::new(key, &value, rule));
                }
            }
        }
        let Some(Value::Dict(_, options)) = find(self.keys, &join(self.path, "optimizer.options")).cloned() else {
            return Ok(());
        };
        if built_in && !options.is_empty() {
            let rule = "it is for optimizers that were registered: leave it out";
            return Err(Refused::new("optimizer.options".into(), &options.into(), rule));
        }
        self.take("optimizer.options");
        options.into_iter().for_each(|(key, value)| self.put(&OF_TRAIN[0], Some(&kind), &key, &value));
        Ok(())
    }

    /// Earlier, a patience of 0 switched early stopping off.
    fn translate_early_stopping(&mut self) -> Result<(), Refused> {
        let path = join(self.path, "early_stopping");
        let Some(Value::Dict(_, given)) = find(self.keys, &path).cloned() else { return Ok(()) };
        let patience = self.effective("early_stopping.patience", |value| value.to_num().map(|_| value.clone()));
        if patience.is_some_and(|patience| !same(&patience, &json("0"))) {
            return Ok(());
        }
        for (key, usual) in OF_PATIENCE {
            if let Some(value) = given.get(key).filter(|value| !same(value, &json(usual))) {
                let rule = "it is for `early_stopping.patience` above 0: give that, or leave it out";
                return Err(Refused::new(format!("early_stopping.{key}"), value, rule));
            }
        }
        self.found.push(join(&path, "patience"));
        insert(self.keys, &path, Value::Empty(Tag::Default, Empty::Unit));
        Ok(())
    }

    /// Returns the kind of a choice: the one that this section names, or else the uppermost layer that names one.
    fn kind(&self, choice: &Choice) -> Option<String> {
        self.effective(choice.path, |value| named(value, choice).map(str::to_owned))
    }

    /// Returns what `read` finds at a path of this section, or else of the layers, uppermost first, or else of the
    /// sections that this one changes.
    fn effective<T>(&self, path: &str, read: impl Fn(&Value) -> Option<T>) -> Option<T> {
        let of = |keys: &Dict, prefix: &str| find(keys, &join(prefix, path)).and_then(&read);
        let all = || self.prefixes.iter().find_map(|prefix| self.all.iter().rev().find_map(|keys| of(keys, prefix)));
        of(self.keys, self.path).or_else(all)
    }

    /// Removes an earlier key.
    fn take(&mut self, key: &str) {
        let path = join(self.path, key);
        remove(self.keys, &path);
        self.found.push(path);
    }

    /// Sets a key of a choice, unless it is given already. `kind` is the kind that is named somewhere.
    fn put(&mut self, choice: &Choice, kind: Option<&str>, key: &str, value: &Value) {
        let path = join(self.path, choice.path);
        let name = find(self.keys, &path).and_then(Value::as_str).map(str::to_owned);
        // Without a name anywhere, it is named here, where whoever reads it needs it.
        let name = name.or_else(|| kind.is_none().then(|| choice.usual.to_owned()));
        if find(self.keys, &path).is_none_or(|value| value.as_dict().is_none()) {
            insert(self.keys, &path, Dict::new().into());
        }
        let Some(keys) = find_mut(self.keys, &path).and_then(dict_mut) else { return };
        if let Some(name) = name {
            keys.entry(choice.tag.to_owned()).or_insert_with(|| name.into());
        }
        keys.entry(key.to_owned()).or_insert_with(|| value.clone());
    }
}

/// A value that is written as JSON in a table.
fn json(text: &str) -> Value {
    let value: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    Value::serialize(value).unwrap_or(Value::Empty(Tag::Default, Empty::Unit))
}
