//! The engine behind a provider's table of rules: each rule goes over the schema once, in the table's order.

use std::{cell::OnceCell, fmt};

use super::{Loss, Omission, inline::Stuck, owner::Owner};
use crate::core::schema::{
    tree::{Json, Object},
    walk::{Holds, Keywords, Path, holds},
};

/// Most losses of one tool that are told; the last one then says that there are more.
pub(super) const MAX_LOSSES: usize = 100;

/// Most values that rules add to one schema by writing things in several places.
const MAX_REPEATED: usize = 10_000;
/// Most bytes of them.
const MAX_REPEATED_BYTES: usize = 2 * crate::core::schema::MAX_BYTES;

/// The rule that takes nulls out of unions, and with that moves the branches after them.
pub(super) const NULL_BRANCH: &str = "NULL_BRANCH";

/// Keywords that open or close an object or an array with `true` and `false`.
pub(super) const FLAGS: [&str; 4] =
    ["additionalItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties"];

/// Where a rule looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// At the schema of the arguments as a whole.
    Root,
    /// At every schema, outer ones first.
    Each,
    /// The same, if any schema has one of these keywords: the rule finds nothing where none has.
    With(&'static [&'static str]),
}

/// What it means that a rule found something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The provider is told the same in another way.
    Convert,
    /// The provider is told less.
    Lossy,
    /// The provider can't be told.
    Omit,
}

/// One row of a provider's table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// UPPER_SNAKE; the reason where a tool is omitted.
    pub id: &'static str,
    pub at: At,
    pub effect: Effect,
    /// Looks, changes, and notes what it found.
    pub apply: fn(&mut Place<'_, '_>),
}

/// A schema that a rule looks at.
#[derive(Debug)]
pub(super) struct Place<'p, 'a> {
    pub schema: &'p mut Json<'a>,
    pub path: &'p Path,
    flag: bool,
    notes: &'p mut Notes,
}

/// What the rules of a table note.
#[derive(Debug, Default)]
struct Notes {
    /// Of the present rule.
    hits: Vec<Hit>,
    /// Why references could not be replaced: for the rules that say so, as trying is the dearest of all.
    stuck: Option<Stuck>,
    /// Where places were left out that can't be said: for the rule that says so.
    left_out: Vec<String>,
    /// How many schemas the present rule looked at.
    seen: usize,
    /// What has been repeated so far, in values and bytes.
    repeated: (usize, usize),
}

/// Something that a rule found.
#[derive(Debug)]
struct Hit {
    pointer: String,
    message: String,
    lossy: bool,
}

impl<'a> Place<'_, 'a> {
    /// The schema, unless it is `true` or `false`.
    pub(super) fn object(&mut self) -> Option<&mut Object<'a>> {
        self.schema.object_mut()
    }

    /// Whether it is the schema of all arguments.
    pub(super) fn is_root(&self) -> bool {
        self.path.mark() == 0
    }

    /// Whether it only opens or closes an object or an array.
    pub(super) fn is_flag(&self) -> bool {
        self.flag
    }

    /// The rule found something here.
    pub(super) fn hit(&mut self, message: impl fmt::Display) {
        if self.is_told(false) {
            self.note(self.path.shown(), message.to_string(), false);
        }
    }

    /// The rule found something at a keyword.
    pub(super) fn hit_at(&mut self, keyword: &str, message: impl fmt::Display) {
        if self.is_told(false) {
            self.note(self.path.at(keyword), message.to_string(), false);
        }
    }

    /// A conversion that usually keeps everything did not.
    pub(super) fn lost_at(&mut self, keyword: &str, message: impl fmt::Display) {
        if self.is_told(true) {
            self.note(self.path.at(keyword), message.to_string(), true);
        }
    }

    /// The same, with a pointer of its own.
    pub(super) fn lost_pointer(&mut self, pointer: String, message: impl fmt::Display) {
        if self.is_told(true) {
            self.note(pointer, message.to_string(), true);
        }
    }

    /// Something was found, with a pointer of its own.
    pub(super) fn hit_pointer(&mut self, pointer: String, message: impl fmt::Display) {
        if self.is_told(false) {
            self.note(pointer, message.to_string(), false);
        }
    }

    /// Beyond what is told it matters only whether something was lost.
    fn is_told(&self, lossy: bool) -> bool {
        let hits = &self.notes.hits;
        hits.len() <= MAX_LOSSES || lossy && !hits.iter().any(|hit| hit.lossy)
    }

    fn note(&mut self, pointer: String, message: String, lossy: bool) {
        self.notes.hits.push(Hit { pointer, message, lossy });
    }

    /// References can't be replaced: later rules are told why.
    pub(super) fn set_stuck(&mut self, stuck: Stuck) {
        self.notes.stuck = Some(stuck);
    }

    /// Places are gone that can't be said: a later rule tells.
    pub(super) fn set_left_out(&mut self, mut pointers: Vec<String>) {
        pointers.truncate(MAX_LOSSES + 1);
        self.notes.left_out = pointers;
    }

    /// Where an earlier rule left out what can't be said.
    pub(super) fn left_out(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes.left_out)
    }

    /// Whether so many values and bytes more may be added by writing things in several places.
    pub(super) fn may_repeat(&mut self, values: usize, bytes: usize) -> bool {
        let (so_far, bytes_so_far) = self.notes.repeated;
        let whole = (so_far.saturating_add(values), bytes_so_far.saturating_add(bytes));
        let fits = whole.0 <= MAX_REPEATED && whole.1 <= MAX_REPEATED_BYTES;
        if fits {
            self.notes.repeated = whole;
        }
        fits
    }

    /// Why an earlier rule could not replace references.
    pub(super) fn stuck(&self) -> Option<&Stuck> {
        self.notes.stuck.as_ref()
    }
}

/// What became of a tool on the way.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub converted: bool,
    pub losses: Vec<Loss>,
    /// How many schemas rules looked at, each as often as a rule did.
    pub seen: usize,
}

impl Report {
    /// Applies a table. `given` is the text that the schema was read from: pointers lead into that, not into what the rules
    /// before made of it.
    ///
    /// # Errors
    /// The first rule that leaves the tool out.
    pub(super) fn apply(
        &mut self,
        rules: &[Rule],
        schema: &mut Json<'_>,
        given: &str,
    ) -> Result<(), Omission> {
        // Most schemas lose nothing, and are not read again.
        let again = OnceCell::new();
        let mut owner = None;
        let mut nulls_gone = false;
        let mut own = |made: &str, nulls_gone: bool| match again.get_or_init(|| Json::parse(given)) {
            Some(root) => owner.get_or_insert_with(|| Owner::of(root)).pointer(made, nulls_gone),
            None => made.to_owned(),
        };
        let mut notes = Notes::default();
        // Unknown where a rule changed something since they were collected.
        let mut keywords = None;
        for rule in rules {
            if let At::With(needed) = rule.at
                && !keywords.get_or_insert_with(|| Keywords::of(schema)).may_hold(needed)
            {
                continue;
            }
            visit(rule, schema, false, &mut Path::default(), &mut notes);
            self.seen += std::mem::take(&mut notes.seen);
            if !notes.hits.is_empty() {
                keywords = None;
            }
            for Hit { pointer, message, lossy } in notes.hits.drain(..) {
                match rule.effect {
                    Effect::Omit => {
                        let pointer = own(&pointer, nulls_gone);
                        return Err(Omission { reason: rule.id, pointer, message });
                    }
                    Effect::Convert if !lossy => self.converted = true,
                    Effect::Convert | Effect::Lossy if self.losses.len() < MAX_LOSSES => {
                        self.lose(own(&pointer, nulls_gone), message);
                    }
                    Effect::Convert | Effect::Lossy => self.lose(pointer, message),
                }
            }
            nulls_gone |= rule.id == NULL_BRANCH;
        }
        Ok(())
    }

    fn lose(&mut self, pointer: String, message: String) {
        self.converted = true;
        match self.losses.len() {
            0..MAX_LOSSES => self.losses.push(Loss { pointer, message }),
            _ => {
                if let Some(last) = self.losses.last_mut() {
                    *last = Loss { pointer: String::new(), message: "and more".to_owned() };
                }
            }
        }
    }
}

fn visit(rule: &Rule, schema: &mut Json<'_>, flag: bool, path: &mut Path, notes: &mut Notes) {
    notes.seen += 1;
    (rule.apply)(&mut Place { schema, path, flag, notes });
    if rule.at == At::Root {
        return;
    }
    let Some(object) = schema.object_mut() else { return };
    for (keyword, value) in &mut object.0 {
        let Some(held) = holds(keyword.value(), value) else { continue };
        let flag = held == Holds::Schema && FLAGS.contains(&keyword.value());
        let outside = path.mark();
        path.push(keyword.value());
        let mark = path.mark();
        match (held, value) {
            (Holds::Schemas, Json::Array(items)) => {
                for (i, item) in items.iter_mut().enumerate().filter(|(_, item)| is_schema(item)) {
                    path.index(i);
                    visit(rule, item, flag, path, notes);
                    path.back_to(mark);
                }
            }
            (Holds::NamedSchemas, Json::Object(named)) => {
                for (name, item) in named.0.iter_mut().filter(|(_, item)| is_schema(item)) {
                    path.push(name.value());
                    visit(rule, item, flag, path, notes);
                    path.back_to(mark);
                }
            }
            (Holds::Schema, value) if is_schema(value) => visit(rule, value, flag, path, notes),
            _ => {}
        }
        path.back_to(outside);
    }
}

/// `dependencies` may hold arrays of names instead.
fn is_schema(value: &Json<'_>) -> bool {
    !matches!(value, Json::Array(_))
}
