// generate.hpp — `mingpt generate`: text from a snapshot, without the training text.
#pragma once

struct RunConfig;

/// Continues generate.prompt by generate.tokens characters (200 where the configuration says none) with the model of
/// the snapshot that snapshot.name chooses, and prints the text. One process works; other ranks do nothing. Nothing is
/// written to the place of the snapshot.
/// Errors  `config` without a snapshot; `storage` for one that is not there, is damaged, or does not record its
/// alphabet;
///         `data` for a character of the prompt that the model does not know.
void generate(const RunConfig& config);
