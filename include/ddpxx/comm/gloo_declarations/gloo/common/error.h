// gloo/common/error.h — empty on purpose: see ../context.h.
#pragma once
