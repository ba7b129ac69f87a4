"""Tests that packages of exported C build where their tools are, and run their test vectors."""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from typer.testing import CliRunner

from popgraph.backends.c.export.packages.registry import PACKAGES
from popgraph.cli import app

NETWORK = """
opset 21

graph net(x: f32[N, 6], type: i64[N]) -> (y: f32[N, 3], best: i64[N]) {
    weight w: f32[6, 8] = he_normal(seed=1)
    weight v: f32[8, 3] = he_normal(seed=2)
    y = Softmax(Relu(x @ w) @ v)
    best = ArgMax(y, axis=1, keepdims=0) + type
}

train (labels: i32[N]) {
    loss = nll(y, labels)
    optimizer = Adam(0.01)
}
"""
STATIC = ("--dim", "N=2", "--package-version", "1.2.3")
TRAINED = ("--dim", "N=2", "--train", "--run-dim", "N=1", "--indices", "error")
SIZED = ("--dim", "N=..5")
DERIVED = ("--dim", "N=2", "--derivatives", "jvp,jacobian")


def invoked(folder: Path, *options: object, text: str = NETWORK) -> tuple[int, str]:
    """The exit code and output of an export of the network as `net`."""
    model = folder / "net.pgraph"
    folder.mkdir(exist_ok=True)
    model.write_text(text)
    arguments = ["export", model, "--name", "net", "-o", folder / "out", *options]
    result = CliRunner().invoke(app, list(map(str, arguments)))
    return result.exit_code, result.output


@cache
def made(*options: str) -> Path:
    """The folder of an export; tests copy it."""
    folder = Path(tempfile.mkdtemp(prefix="popgraph-packages-"))
    atexit.register(shutil.rmtree, folder)
    code, output = invoked(folder, *options)
    assert code == 0, output
    return folder / "out"


def exported(folder: Path, *options: str) -> Path:
    """A copy of an export."""
    return shutil.copytree(made(*options), folder / "out")


def run(command: Sequence[object], folder: Path) -> str:
    """The output of a command, which must succeed."""
    done = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def needs(tool: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"{tool} is not installed")


def built(folder: Path, sources: Sequence[Path], *flags: str) -> str:
    """The output of a program of C and C++, in which every warning is an error."""
    objects = []
    for number, source in enumerate(sources):
        c = source.suffix in (".c", ".S")
        command = ["cc", "-std=c11"] if c else ["c++", "-std=c++17"]
        objects.append(folder / f"{number}.o")
        strict = ["-O0", "-Wall", "-Wextra", "-Werror", f"-I{source.parent}"]
        run([*command, *strict, *flags, "-c", source, "-o", objects[-1]], source.parent)
    run(["c++", *objects, "-lm", "-pthread", "-o", "program"], folder)
    return run([folder / "program"], folder)


USER = """
#include "net.hpp"
#include <array>
#include <cstdio>
#include <type_traits>

static_assert(!std::is_copy_constructible_v<popgraph::net>);
static_assert(std::is_nothrow_move_constructible_v<popgraph::net>);

template <class Error, class Call>
static void throws(Call call) {
    try { call(); } catch (const Error &error) { std::puts(error.what()); return; }
    std::puts("nothing was thrown");
}

int main() {
    MODEL
    std::vector<float> x(popgraph::net::input_elements::x, 0.5f);
    BODY
}
"""
LOADED = """
    alignas(NET_ALIGNMENT) static unsigned char weights[NET_WEIGHTS_BYTES];
    std::FILE *file = std::fopen("out/net_weights.bin", "rb");
    if (file == nullptr || std::fread(weights, 1, sizeof weights, file) != sizeof weights) return 1;
    std::fclose(file);
    popgraph::net first(weights);
"""
"""The constructor of a model whose constants are a file."""
USERS = {
    STATIC: """
    const std::int64_t row[2] = {10, 20};
    std::array<float, 6> y{};
    std::vector<std::int64_t> best(2);
    popgraph::net model = std::move(first);
    model.run({x, row}, {y, best});
    std::printf("%d %d %.3f\\n", !first, bool(model), double(y[0] + y[1] + y[2]));
    std::printf("%d\\n", best[0] >= 10 && best[1] == best[0] + 10);
    std::printf("%d\\n", model.try_run({{x.data(), 5}, row}, {y, best}));
    throws<std::invalid_argument>([&] { model.run({x, row}, {{y.data(), 7}, best}); });
    throws<std::logic_error>([&] { first.run({x, row}, {y, best}); });
""",
    TRAINED: """
    const std::int32_t labels[2] = {1, 2}, wrong[2] = {1, 7};
    const std::int64_t row[2] = {0, 0};
    std::array<float, 6> y{};
    std::array<float, 1> loss{}, again{};
    std::vector<std::int64_t> best(2);
    const auto step = [&](auto &into) { first.step({x, row, labels}, {y, best, into}); };
    step(loss);
    const std::vector<unsigned char> state = first.save();
    step(loss);
    first.load(state);
    step(again);
    std::printf("%d\\n", loss[0] == again[0]);
    const auto w = first.variable<float>("w");
    w[0] = 100;
    std::printf("%zu %g\\n", w.size(), double(first.variable<const float>("w")[0]));
    std::printf("%d\\n", first.try_variable<double>("w").data() == nullptr);
    std::array<float, 3> single{};
    first.run({{x.data(), 6}, {row, 1}}, {single, {best.data(), 1}});
    std::printf("%.3f\\n", double(single[0] + single[1] + single[2]));
    throws<std::invalid_argument>([&] { first.variable<float>("u"); });
    throws<std::invalid_argument>([&] { first.load({state.data(), 3}); });
    throws<std::out_of_range>([&] { first.step({x, row, wrong}, {y, best, loss}); });
""",
    SIZED: """
    throws<std::invalid_argument>([] { popgraph::net(weights + 1); });
    const std::int64_t row[5] = {};
    std::vector<float> y(3 * 4);
    std::vector<std::int64_t> best(5);
    first.run({4}, {x, row}, {y, best});
    std::printf("%.3f\\n", double(y[9] + y[10] + y[11]));
    throws<std::out_of_range>([&] { first.run({6}, {x, row}, {y, best}); });
    throws<std::invalid_argument>([&] { first.run({5}, {x, row}, {y, best}); });
""",
    DERIVED: """
    const std::int64_t row[2] = {};
    std::array<float, 6> y{}, tangent{};
    std::vector<std::int64_t> best(2);
    std::vector<float> all(popgraph::net::jacobian_output_elements::Jacobian___y___x), ones(12, 1);
    first.jacobian({x, row}, {y, best, all});
    first.jvp({x, row, ones}, {y, best, tangent});
    float sum = 0;
    for (int at = 0; at < 12; at++) sum += all[at];
    std::printf("%zu %d\\n", all.size(), std::abs(sum - tangent[0]) < 1e-5f);
""",
}
PRINTED = {
    STATIC: "1 1 1.000\n1\n-1\nnet: the size of an array\nnet: there is no model\n",
    TRAINED: "1\n48 100\n1\n1.000\nnet: no variable of this name and type: u\n"
    "net: the size of a state\nnet: an index in the inputs\n",
    SIZED: "net: the alignment of the constants\n1.000\n"
    "net: a size of the call\nnet: the size of an array\n",
    DERIVED: "72 1\n",
}


@pytest.mark.parametrize("options", USERS, ids=["static", "trained", "sized", "derived"])
def test_the_class_of_cpp_owns_and_checks_a_model(options: tuple[str, ...], tmp_path: Path) -> None:
    weights = "file" if options == SIZED else "array"
    folder = exported(tmp_path, *options, "--weights", weights)
    text = USER.replace("BODY", USERS[options])
    text = text.replace("MODEL", LOADED if weights == "file" else "popgraph::net first;")
    (folder / "user.cpp").write_text(text)
    sources = [*folder.glob("net*.c"), folder / "user.cpp"]
    assert built(tmp_path, sources) == PRINTED[options]
    if options == TRAINED:  # The one with the most functions.
        (folder / "small.cpp").write_text('#include "net.hpp"\n')
        command = ["c++", "-std=c++17", "-fno-exceptions", "-Wall", "-Wextra", "-Werror"]
        run([*command, "-c", "small.cpp"], folder)


CONVOLUTION = """
opset 21

graph net(x: f32[N, 8, 24, 24]) -> (y) {
    weight w: f32[8, 8, 5, 5] = he_normal(seed=1)
    y = Conv(x, w)
}
"""
"""A network whose kernels use several threads."""
CONSUMER = """\
cmake_minimum_required(VERSION 3.10)
project(user LANGUAGES C CXX)
set(CMAKE_CXX_STANDARD 17)
find_package(net 1.1 REQUIRED CONFIG)
add_executable(user main.c stop.cpp)
target_link_libraries(user net::net)
"""


@needs("cmake")
def test_an_installed_export_is_found_by_cmake(tmp_path: Path) -> None:
    """With threads, whose library the package finds for its users."""
    code, output = invoked(tmp_path, *STATIC, "--threads", "2", text=CONVOLUTION)
    assert code == 0, output
    folder = tmp_path / "out"
    run(["cmake", "-S", folder, "-B", "build", "-Dnet_check=OFF"], tmp_path)
    run(["cmake", "--build", "build"], tmp_path)
    run(["cmake", "--install", "build", "--prefix", tmp_path / "prefix"], tmp_path)
    user = tmp_path / "user"
    user.mkdir()
    (user / "CMakeLists.txt").write_text(CONSUMER)
    (user / "stop.cpp").write_text('#include "net.hpp"\nvoid stop() { popgraph::net::stop(); }\n')
    for file in ("main.c", "check_data.h"):
        shutil.move(folder / file, user / file)
    shutil.rmtree(folder)
    run(["cmake", "-S", user, "-B", user, f"-DCMAKE_PREFIX_PATH={tmp_path / 'prefix'}"], user)
    run(["cmake", "--build", user], user)
    assert run([user / "user"], user).endswith("good\n")
    assert (tmp_path / "prefix/include/net.hpp").exists()


ARDUINO = """\
#include <cstdint>
#include <cstdio>
#include <cstdlib>
static struct {
    void begin(long) {}
    operator bool() const { return true; }
    void print(const char *text) { std::fputs(text, stdout); }
    void print(char one) { std::putchar(one); }
    void print(unsigned long number) { std::printf("%lu", number); }
    void print(double number, int digits) { std::printf("%.*f", digits, number); }
    void println(const char *text) { std::puts(text); }
} Serial;
static unsigned long micros() { return 7; }
static unsigned long millis() { return 0; }
static void delay(unsigned long) { std::exit(0); }
"""
"""The functions of Arduino that sketches call."""
RUN = "\nint main() { for (setup();;) loop(); }\n"


@pytest.mark.parametrize("options", [TRAINED, SIZED], ids=["trained", "sized"])
def test_the_sketch_of_an_arduino_library_runs(options: tuple[str, ...], tmp_path: Path) -> None:
    """Every board defines the functions of Arduino; here, the test does."""
    folder = exported(tmp_path, *options, "--package", "arduino")
    example = folder / "examples/net"
    sketch = (example / "net.ino").read_text()
    (example / "sketch.cpp").write_text(ARDUINO + sketch + RUN)
    sources = [*(folder / "src").glob("*.c"), example / "sketch.cpp"]
    printed = built(tmp_path, sources, f"-I{folder / 'src'}").splitlines()
    rows = dict(line.split(" = ") for line in printed if " = " in line)
    assert rows.keys() == ({"y", "best", "loss"} if options == TRAINED else {"y", "best"})
    assert abs(sum(map(float, rows["y"].split()[:3])) - 1) < 2e-4
    assert re.fullmatch(r"good, \d us", printed[-1])


def test_the_sketch_reports_wrong_outputs(tmp_path: Path) -> None:
    folder = exported(tmp_path, *SIZED, "--package", "arduino")
    example = folder / "examples/net"
    (example / "check_data.h").write_text(
        (example / "check_data.h").read_text().replace("wanted_y_0[] = {", "wanted_y_0[] = {0,")
    )
    (example / "sketch.cpp").write_text(ARDUINO + (example / "net.ino").read_text() + RUN)
    sources = [*(folder / "src").glob("*.c"), example / "sketch.cpp"]
    printed = built(tmp_path, sources, f"-I{folder / 'src'}")
    assert "not the output of the test vector" in printed
    assert "BAD, 0 us" in printed


PROPERTIES = {
    "name": r"[A-Za-z0-9][A-Za-z0-9 _.\-]{0,62}",
    "version": r"\d+\.\d+\.\d+",
    "author": r".+",
    "maintainer": r".+ <.+@.+>",
    "sentence": r"(?!.*rduino).+",
    "paragraph": r".+",
    "category": r"Data Processing",
    "url": r"https://.+",
    "architectures": r"\*",
    "includes": r"net\.h",
}
"""The rules of Arduino's library specification, revision 2.2."""


def test_properties_and_keywords_of_an_arduino_library_obey_its_specification(
    tmp_path: Path,
) -> None:
    folder = exported(tmp_path, *TRAINED, "--package", "arduino")
    lines = (folder / "library.properties").read_text().splitlines()
    assert [line.split("=", 1)[0] for line in lines] == [*PROPERTIES]
    for line in lines:
        key, value = line.split("=", 1)
        assert re.fullmatch(PROPERTIES[key], value), line
    header = (folder / "src/net.h").read_text()
    for line in (folder / "keywords.txt").read_text().splitlines():
        word, kind = line.split("\t")
        assert re.search(rf"\b{word}\b", header), word
        assert kind in ("KEYWORD1", "KEYWORD2", "LITERAL1")


def test_the_manifest_of_a_platformio_library_obeys_its_schema(tmp_path: Path) -> None:
    folder = exported(tmp_path, *STATIC, "--package", "platformio")
    manifest = json.loads((folder / "library.json").read_text())
    assert manifest["version"] == "1.2.3"
    known = {"name", "version", "description", "keywords", "headers", "frameworks", "platforms"}
    assert manifest.keys() == known | {"build", "examples"}
    assert not re.search(r"[:;/,@<>]", manifest["name"])
    assert len(manifest["description"]) <= 1000
    assert all(re.fullmatch(r"[a-z\d\-_+. ]{1,50}", one) for one in manifest["keywords"])
    assert manifest["frameworks"] == manifest["platforms"] == ["*"]
    assert manifest["build"].keys() == {"srcDir", "includeDir", "flags"}
    assert all((folder / "src" / one).exists() for one in manifest["headers"])
    (example,) = manifest["examples"]
    assert example.keys() == {"name", "base", "files"}
    for file in example["files"]:
        assert (folder / example["base"] / file).exists()
    project = folder / example["base"] / "src"
    (project / "Arduino.h").write_text(ARDUINO)
    (project / "sketch.cpp").write_text((project / "sketch.cpp").read_text() + RUN)
    library = [*(folder / "src").glob("*.c")]
    for source in ("main.c", "sketch.cpp"):
        printed = built(tmp_path, [*library, project / source], f"-I{folder / 'src'}")
        assert re.search("^good", printed, re.MULTILINE)


SYSTEMS = {
    "esp-idf": (
        "examples/check/main",
        {"esp_timer.h": "long long esp_timer_get_time(void);\n"},
        "long long esp_timer_get_time(void) { return 0; }\n"
        "void app_main(void);\nint main(void) { app_main(); }\n",
    ),
    "zephyr": (
        "samples/check/src",
        {
            "zephyr/kernel.h": "long long k_uptime_ticks(void);\n"
            "#define CONFIG_SYS_CLOCK_TICKS_PER_SEC 100\n"
        },
        "long long k_uptime_ticks(void) { return 0; }\n",
    ),
}
"""The folder of an example, and the functions of its system, which the test defines."""


def written_stubs(folder: Path, headers: Mapping[str, str]) -> None:
    """Writes the headers of a system."""
    for file, text in headers.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)


@pytest.mark.parametrize(
    ("kind", "options"),
    [("esp-idf", SIZED), ("zephyr", DERIVED)],
    ids=["esp-idf", "zephyr"],
)
def test_examples_for_operating_systems_of_microcontrollers_run(
    kind: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    folder = exported(tmp_path, *options, "--package", kind)
    place, headers, functions = SYSTEMS[kind]
    stubs = tmp_path / "stubs"
    written_stubs(stubs, headers)
    (tmp_path / "system.c").write_text(functions)
    listed = re.findall(r"src/\w+\.c", (folder / "CMakeLists.txt").read_text())
    assert len(listed) == 2
    sources = [*(folder / one for one in listed), folder / place / "main.c", tmp_path / "system.c"]
    printed = built(tmp_path, sources, f"-I{folder / 'src'}", f"-I{stubs}")
    assert "good\n0 ms a run" in printed


MODULES = {
    "esp-idf": """
function(idf_component_register)
    cmake_parse_arguments(ONE "" "" "SRCS;INCLUDE_DIRS" ${ARGN})
    if(TARGET component)
        add_executable(user ${ONE_SRCS} ${CMAKE_SOURCE_DIR}/system.c)
        target_include_directories(user PRIVATE ${CMAKE_SOURCE_DIR}/stubs)
        target_link_libraries(user component m)
    else()
        add_library(component STATIC ${ONE_SRCS})
        target_include_directories(component PUBLIC ${ONE_INCLUDE_DIRS})
        set(COMPONENT_LIB component PARENT_SCOPE)
    endif()
endfunction()
add_subdirectory(out)
add_subdirectory(out/examples/check/main)
""",
    "zephyr": """
macro(zephyr_library)
    add_library(module STATIC)
endmacro()
macro(zephyr_library_sources)
    target_sources(module PRIVATE ${ARGN})
endmacro()
macro(zephyr_library_compile_options)
    target_compile_options(module PRIVATE ${ARGN})
endmacro()
macro(zephyr_include_directories)
    target_include_directories(module PUBLIC ${ARGN})
endmacro()
macro(find_package)
    foreach(one ${EXTRA_ZEPHYR_MODULES})
        add_subdirectory(${one} module)
    endforeach()
    add_executable(app ${CMAKE_SOURCE_DIR}/system.c)
    target_include_directories(app PRIVATE ${CMAKE_SOURCE_DIR}/stubs)
    target_link_libraries(app module m)
endmacro()
macro(project)
endmacro()
file(STRINGS out/samples/check/prj.conf options)
foreach(one ${options})
    string(REPLACE = ";" one ${one})
    set(${one})
endforeach()
add_subdirectory(out/samples/check)
""",
}
"""The functions of both build systems that a package calls, in plain CMake."""


@needs("cmake")
@pytest.mark.parametrize("kind", MODULES)
def test_cmake_reads_the_build_files_of_microcontrollers(kind: str, tmp_path: Path) -> None:
    exported(tmp_path, *(SIZED if kind == "esp-idf" else DERIVED), "--package", kind)
    _, headers, functions = SYSTEMS[kind]
    written_stubs(tmp_path / "stubs", headers)
    (tmp_path / "system.c").write_text(functions)
    start = "cmake_minimum_required(VERSION 3.20)\nproject(simulated LANGUAGES C)\n"
    (tmp_path / "CMakeLists.txt").write_text(start + MODULES[kind])
    run(["cmake", "-S", ".", "-B", "build"], tmp_path)
    run(["cmake", "--build", "build"], tmp_path)
    (program,) = [one for name in ("user", "app") for one in tmp_path.glob(f"build/**/{name}")]
    assert "good\n" in run([program], tmp_path)


def test_manifests_of_esp_idf_and_zephyr_obey_their_rules(tmp_path: Path) -> None:
    component = exported(tmp_path / "esp", *SIZED, "--package", "esp-idf")
    manifest = yaml.safe_load((component / "idf_component.yml").read_text())
    assert manifest.keys() == {"version", "description", "dependencies"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", manifest["version"])
    assert manifest["dependencies"] == {"idf": ">=5.0"}
    module = exported(tmp_path / "zephyr", *DERIVED, "--package", "zephyr")
    described = yaml.safe_load((module / "zephyr/module.yml").read_text())
    assert described.keys() == {"name", "build", "samples"}
    assert (module / described["build"]["cmake"] / "CMakeLists.txt").exists()
    kconfig = (module / described["build"]["kconfig"]).read_text()
    (sample,) = (module / described["samples"][0]).iterdir()
    declared = re.findall(r"^config (\w+)", kconfig, re.MULTILINE)
    assert declared == ["POPGRAPH_NET"]
    assert "CONFIG_POPGRAPH_NET=y\n" in (sample / "prj.conf").read_text()
    tested = yaml.safe_load((sample / "sample.yaml").read_text())
    assert tested.keys() == {"sample", "tests"}
    assert tested["sample"].keys() == {"name", "description"}
    ((name, case),) = tested["tests"].items()
    assert re.fullmatch(r"\w+(\.\w+)+", name)
    assert case.keys() == {"tags", "min_ram", "integration_platforms", "harness", "harness_config"}
    assert case["harness_config"].keys() == {"type", "regex"}
    assert re.search(case["harness_config"]["regex"][0], "net:\ngood\n1 ms", re.MULTILINE)


RUST = {
    TRAINED: """
#[test]
fn state_is_saved_and_restored() {
    let mut model = net::Model::new();
    let (x, row, labels) = ([0.5; 12], [0; 2], [1, 2]);
    let step = |model: &mut net::Model, labels: &[i32]| {
        let (mut y, mut best, mut loss) = ([0.0; 6], [0; 2], [0.0]);
        let inputs = net::Inputs { x: &x, r#type: &row, labels };
        let outputs = net::Outputs { y: &mut y, best: &mut best, loss: &mut loss };
        model.step(inputs, outputs).map(|()| loss[0])
    };
    let _ = step(&mut model, &labels);
    let state = model.save();
    let second = step(&mut model, &labels).unwrap();
    model.load(&state).unwrap();
    assert_eq!(step(&mut model, &labels), Ok(second));
    assert_eq!(model.load(&state[1..]), Err(net::Error::BadArray("state")));
    model.variable::<f32>("w").unwrap()[0] = 100.0;
    assert_eq!(model.variable::<f32>("w").unwrap()[0], 100.0);
    assert_eq!(model.variable::<f32>("w").unwrap().len(), 48);
    assert!(model.variable::<f64>("w").is_none());
    assert!(model.variable::<f32>("u").is_none());
    let (mut y, mut best) = ([0.0; 3], [0]);
    let inputs = net::RunInputs { x: &x[..6], r#type: &row[..1] };
    model.run(inputs, net::RunOutputs { y: &mut y, best: &mut best }).unwrap();
    assert!((y.iter().sum::<f32>() - 1.0).abs() < 1e-5);
    assert_eq!(step(&mut model, &[1, 7]), Err(net::Error::BadIndex));
    assert_eq!(step(&mut model, &[1]), Err(net::Error::BadArray("labels")));
}

fn main() {}
""",
    SIZED: """
#[test]
fn sizes_are_checked() {
    let mut model = net::Model::new();
    let (x, row) = ([0.5; 30], [0; 5]);
    let mut run = |rows: i64, length: usize| {
        let (mut y, mut best) = ([0.0; 15], [0; 5]);
        let inputs = net::Inputs { x: &x, r#type: &row };
        let outputs = net::Outputs { y: &mut y[..length], best: &mut best };
        model.run(net::Sizes { N: rows }, inputs, outputs).map(|()| y[9] + y[10] + y[11])
    };
    assert!((run(4, 12).unwrap() - 1.0).abs() < 1e-5);
    assert_eq!(run(4, 11), Err(net::Error::BadArray("y")));
    assert_eq!(run(6, 15), Err(net::Error::BadSize));
}

fn main() {}
""",
    DERIVED: """
#[test]
fn derivatives_agree() {
    let mut model = net::Model::new();
    let (x, row, ones) = ([0.5; 12], [0; 2], [1.0; 12]);
    let (mut y, mut best, mut tangent, mut all) = ([0.0; 6], [0; 2], [0.0; 6], [0.0; 72]);
    let inputs = net::JacobianInputs { x: &x, r#type: &row };
    let outputs =
        net::JacobianOutputs { y: &mut y, best: &mut best, Jacobian___y___x: &mut all };
    model.jacobian(inputs, outputs).unwrap();
    let inputs = net::JvpInputs { x: &x, r#type: &row, Tangent___x: &ones };
    let outputs = net::JvpOutputs { y: &mut y, best: &mut best, Tangent___y: &mut tangent };
    model.jvp(inputs, outputs).unwrap();
    assert!((all[..12].iter().sum::<f32>() - tangent[0]).abs() < 1e-5);
}

fn main() {}
""",
}
"""Users of crates, as tests."""


@needs("cargo")
@pytest.mark.parametrize("options", [TRAINED, SIZED, DERIVED], ids=["trained", "sized", "derived"])
def test_crates_build_and_pass_their_tests(options: tuple[str, ...], tmp_path: Path) -> None:
    folder = exported(tmp_path, *options, "--package", "cargo")
    (folder / "src/main.rs").write_text(RUST[options])
    command = ["cargo", "test", "--offline", "--quiet", "--lib", "--bins", "--tests"]
    environment = {
        **os.environ,
        "RUSTFLAGS": "-D warnings",
        "CARGO_TARGET_DIR": str(tmp_path / "t"),
    }
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("test result: ok. 2 passed") == 1
    assert done.stdout.count("test result: ok. 1 passed") == 1


@needs("conan")
def test_conan_creates_and_tests_the_package(tmp_path: Path) -> None:
    folder = exported(tmp_path, *STATIC, "--package", "conan")
    environment = {**os.environ, "CONAN_HOME": str(tmp_path / "home")}
    for command in (["profile", "detect"], ["create", str(folder), "--no-remote"]):
        done = subprocess.run(["conan", *command], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "good\n" in done.stdout + done.stderr


def test_a_conan_package_consists_of_an_export_and_two_recipes(tmp_path: Path) -> None:
    """Without Conan: recipes are Python that names existing files."""
    folder = exported(tmp_path, *STATIC, "--package", "conan")
    for recipe in (folder / "conanfile.py", folder / "test_package/conanfile.py"):
        compile(recipe.read_text(), str(recipe), "exec")
    patterns = re.findall(
        r'"([^"]+)"',
        re.findall(r"exports_sources = (.*)", (folder / "conanfile.py").read_text())[0],
    )
    assert {one.name for pattern in patterns for one in folder.glob(pattern)} == {
        one.name for one in folder.iterdir() if one.is_file()
    } - {"conanfile.py", "Makefile"}


STARTUP = """
#include <stdint.h>
extern void _start(void);
static void reset(void) {
    *(volatile uint32_t *)0xE000ED88 |= 0xF << 20; /* Enables the unit for f32. */
    _start();
}
__attribute__((section(".vectors"), used))
static const uintptr_t vectors[] = {0x20400000, (uintptr_t)reset};
"""
CORTEX_M4 = ("-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard")


@needs("arm-none-eabi-gcc")
@needs("qemu-system-arm")
@pytest.mark.parametrize("kind", SYSTEMS)
def test_examples_run_on_an_emulated_cortex_m4(kind: str, tmp_path: Path) -> None:
    folder = exported(tmp_path, *(SIZED if kind == "esp-idf" else DERIVED), "--package", kind)
    place, headers, functions = SYSTEMS[kind]
    written_stubs(tmp_path / "stubs", headers)
    (tmp_path / "system.c").write_text(functions + STARTUP)
    command = ["arm-none-eabi-gcc", *CORTEX_M4, "-std=gnu11", "-Os", "-Wall", "-Wextra", "-Werror"]
    command += ["-Istubs", f"-I{folder / 'src'}", "--specs=rdimon.specs"]
    command += ["-Wl,--section-start=.vectors=0", "-Wl,-Tdata=0x20000000"]
    sources = [*(folder / "src").glob("*.c"), folder / place / "main.c", "system.c"]
    run([*command, *sources, "-lm", "-o", "check.elf"], tmp_path)
    emulator = ["qemu-system-arm", "-M", "mps2-an386", "-nographic", "-semihosting"]
    assert "good\n" in run([*emulator, "-kernel", "check.elf"], tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--package", "arduino", "--threads", "2"], "a package for arduino cannot have 2 threads"),
        (["--package", "zephyr", "--weights", "incbin"], "cannot have --weights incbin"),
        (["--package", "cargo", "--weights", "file"], "cannot have --weights file"),
        (["--package", "cargo", "--name", "test"], "'test' cannot be the name of a crate"),
        (
            ["--package", "esp-idf", "--derivatives", "jvp", "--casadi"],
            "a package for esp-idf has no external function for CasADi",
        ),
        (["--package", "conan", "--package-version", "1.02.0"], "'1.02.0' is not a version"),
        (["--package", "vcpkg"], "there is no package 'vcpkg'"),
    ],
)
def test_options_that_do_not_fit_a_package_are_refused(
    options: list[str], message: str, tmp_path: Path
) -> None:
    code, output = invoked(tmp_path, "--dim", "N=2", *options)
    assert code == 1
    assert message in output
    assert not (tmp_path / "out").exists()


def test_the_help_lists_all_packages() -> None:
    shown = CliRunner().invoke(app, ["export", "--help"], env={"COLUMNS": "200"}).output
    assert all(re.search(rf"\b{name}\b", shown) for name in PACKAGES)
