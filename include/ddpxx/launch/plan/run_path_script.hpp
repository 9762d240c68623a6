// ddpxx/launch/plan/run_path_script.hpp — the script by which Python runs the program of `--run-path`.
#pragma once

namespace ddpxx::detail {

/// Runs the script that the first argument names, by `runpy`. As under torchrun, an exception goes to
/// TORCHELASTIC_ERROR_FILE.
inline constexpr const char* kRunPathScript = R"(import json, os, runpy, sys, time, traceback
del sys.argv[0]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except Exception as error:
    if os.environ.get("TORCHELASTIC_ERROR_FILE"):
        with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
            json.dump({"message": {"message": f"{type(error).__name__}: {error}",
                                   "extraInfo": {"py_callstack": traceback.format_exc(),
                                                 "timestamp": str(int(time.time()))}}}, file)
    raise
)";

}  // namespace ddpxx::detail
