// gloo/algorithm.h — empty on purpose: see context.h.
#pragma once
