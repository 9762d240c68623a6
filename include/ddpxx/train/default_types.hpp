// ddpxx/train/default_types.hpp — the types that a trainer takes where a program names none: AdamW, Float32, DDP.
#pragma once

#include <ddpxx/optim/adamw.hpp>        // IWYU pragma: export
#include <ddpxx/parallel/ddp.hpp>       // IWYU pragma: export
#include <ddpxx/precision/float32.hpp>  // IWYU pragma: export
