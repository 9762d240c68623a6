// src/config.cpp — the part of ddpxx::core that comes from the room config/: see ddpxx/core/inline.hpp.

#include <ddpxx/config/check_config_inl.hpp>
#include <ddpxx/config/check_sweep_inl.hpp>
#include <ddpxx/config/codec_inl.hpp>
#include <ddpxx/config/duration_codec_inl.hpp>
#include <ddpxx/config/number_text_inl.hpp>
#include <ddpxx/config/output_place_inl.hpp>
#include <ddpxx/config/parse_config_inl.hpp>
#include <ddpxx/config/path_inl.hpp>
#include <ddpxx/config/print_inl.hpp>
#include <ddpxx/config/sweep_inl.hpp>
#include <ddpxx/config/table_inl.hpp>
#include <ddpxx/config/text_inl.hpp>
#include <ddpxx/config/value_shape_inl.hpp>
#include <ddpxx/config/walk_inl.hpp>
