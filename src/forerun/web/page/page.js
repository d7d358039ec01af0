// Draws charts in the colours of the page, copies lines, keeps the address of the answer. Nothing is fetched from elsewhere.
(function () {
  let library;
  function plotly() {
    library = library || new Promise((done, failed) => {
      const script = document.createElement("script");
      script.src = "/page/plotly.js";
      script.onload = () => done(window.Plotly);
      script.onerror = failed;
      document.head.append(script);
    });
    return library;
  }
  function dressed(layout, element) {
    const style = getComputedStyle(element);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = { zeroline: false, automargin: true, color: colour("--text"), gridcolor: colour("--grid"), linecolor: colour("--line") };
    return Object.assign({}, layout, {
      hovermode: "closest", paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true,
      font: { family: "system-ui, sans-serif", size: 12, color: colour("--text") },
      hoverlabel: { bgcolor: colour("--card"), bordercolor: colour("--line"), font: { color: colour("--text") } },
      xaxis: Object.assign({}, layout.xaxis, axis), yaxis: Object.assign({}, layout.yaxis, axis),
    });
  }
  const widths = new ResizeObserver((entries) => {
    for (const { target } of entries) if (target.offsetWidth && target.dataset.drawn) requestAnimationFrame(() => window.Plotly.Plots.resize(target));
  });
  function draw(element) {
    const chart = JSON.parse(element.dataset.figure);
    return window.Plotly.react(element, chart.data, dressed(chart.layout, element), { displaylogo: false, displayModeBar: false });
  }
  function drawNew() {
    for (const element of document.querySelectorAll(".plot[data-figure]:not([data-asked])")) {
      element.dataset.asked = "yes";
      plotly().then(() => draw(element)).then(() => { element.dataset.drawn = "yes"; widths.observe(element); });
    }
  }
  function keepAddress() {
    for (const element of document.querySelectorAll(".again[data-state]:not([data-kept])")) {
      element.dataset.kept = "yes";
      if (element.offsetParent !== null) history.replaceState(null, "", element.dataset.state);
    }
  }
  async function copied(words) {
    try {
      await navigator.clipboard.writeText(words);
    } catch {
      const area = Object.assign(document.createElement("textarea"), { value: words });
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest && event.target.closest("button.copy");
    if (!button) return;
    const code = button.closest(".lines");
    copied(button.dataset.link ? new URL(button.dataset.link, location.href).href : code.querySelector("code").textContent)
      .then(() => { button.textContent = "Copied"; setTimeout(() => (button.textContent = "Copy"), 1500); });
  });
  // The Enter key asks, from any field that holds one line and opens no list.
  document.addEventListener("keydown", (event) => {
    const field = event.target;
    if (event.key !== "Enter" || event.shiftKey || !field.matches("#body input[type=text], #body textarea:not([rows]), #body textarea[rows='1']")) return;
    if (field.closest("[role=listbox], .multiselect, #model, #devices, #device_spec") || field.getAttribute("role") === "listbox" || field.hasAttribute("aria-expanded")) return;
    event.preventDefault();
    const button = [...document.querySelectorAll("button.ask")].find((one) => one.offsetParent !== null);
    if (button) setTimeout(() => button.click(), 60);
  }, true);
  // A link names a tab: its button is pressed as soon as it is there.
  window.forerunPress = (tab, tries = 100) => {
    const button = document.getElementById("ask-" + tab);
    if (button) button.click();
    else if (tries) setTimeout(() => window.forerunPress(tab, tries - 1), 50);
  };
  let waiting = false;
  new MutationObserver(() => {
    if (waiting) return;
    waiting = true;
    setTimeout(() => { waiting = false; drawNew(); keepAddress(); }, 30);
  }).observe(document.documentElement, { childList: true, subtree: true });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    document.querySelectorAll(".plot[data-drawn]").forEach(draw);
  });
})();
