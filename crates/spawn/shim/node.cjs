// Run before the script in a Node template, with the functions of node.c.
(function (require, module, galgo) {
  "use strict";
  const OPTIONS = 4; // as node.c puts them
  const Module = require("module");
  const path = require("path");

  process.execArgv.splice(0, OPTIONS);
  process._preload_modules.length = 0;
  delete Module._cache[module.filename];

  const known = new Set(process.moduleLoadList);
  const files = [];
  let obstacle = "";

  // ---- modules that earlier children loaded ----
  const main = process.argv[1];
  const threads = galgo.threads();
  for (const name of galgo.modules().split("\n")) {
    if (!name || obstacle) continue;
    try {
      require(name);
    } catch {
      // It may have moved; the script will say so where it needs it.
    }
    if (galgo.threads() > threads) obstacle = `starts a thread while loading ${name}`;
  }

  function lesson() {
    const builtin = process.moduleLoadList
      .filter((name) => name.startsWith("NativeModule ") && !known.has(name))
      .map((name) => name.slice("NativeModule ".length))
      .filter((name) => Module.builtinModules.includes(name));
    const packages = Object.keys(Module._cache).filter((file) => file.includes("/node_modules/"));
    return builtin.concat(packages).join("\n");
  }

  // ---- the child ----
  function stop() {
    const list = Object.keys(Module._cache).concat(files);
    const learn = galgo.stop(list.join("\n"), obstacle);
    const pid = Number(require("fs").readlinkSync("/proc/self"));
    Object.defineProperty(process, "pid", { value: pid });
    Object.defineProperty(process, "emit", { value: galgo.emitter(process.emit), enumerable: false, writable: true, configurable: true });
    if (learn & 1) galgo.teach(lesson);
  }
  stop();
});
