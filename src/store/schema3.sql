-- Schema 3: the labels that policies know a tool by, beside those that its owner says now.

ALTER TABLE tool ADD COLUMN approved_labels TEXT; -- JSON; NULL: those of the spec
