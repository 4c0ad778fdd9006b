"use strict";
for (const section of document.querySelectorAll(".slider")) {
  const tracks = [...section.querySelectorAll(".track")];
  const choices = [...section.querySelectorAll("input[type=radio]")];
  const choose = (k) => tracks.forEach((track, i) => { track.hidden = i !== k; });
  choices.forEach((choice, k) => choice.addEventListener("change", () => choose(k)));
  choose(Math.max(0, choices.findIndex((choice) => choice.checked)));
  for (const track of tracks) {
    const data = JSON.parse(track.dataset.track);
    const slider = track.querySelector("input[type=range]"), play = track.querySelector("button");
    const show = () => {
      const i = Number(slider.value);
      for (const image of track.querySelectorAll("image")) image.setAttribute("x", -i * image.dataset.width);
      for (const group of track.querySelectorAll("[data-dots]"))
        data.dots[group.dataset.dots][i].forEach(([x, y], k) => {
          group.children[k].setAttribute("cx", x);
          group.children[k].setAttribute("cy", y);
        });
      const marker = track.querySelector(".marker");
      marker.setAttribute("x1", data.places[i]);
      marker.setAttribute("x2", data.places[i]);
      track.querySelectorAll(".now td").forEach((cell, k) => { cell.textContent = data.matrices[i][k]; });
      track.querySelector("output").textContent = data.words[i];
      slider.setAttribute("aria-valuetext", data.words[i]);
    };
    let timer = 0;
    const stop = () => { clearInterval(timer); timer = 0; play.textContent = "Play"; };
    play.addEventListener("click", () => {
      if (timer) return stop();
      play.textContent = "Stop";
      timer = setInterval(() => {
        slider.value = (Number(slider.value) + 1) % (Number(slider.max) + 1);
        show();
        if (track.hidden) stop();
      }, Number(slider.max) > 12 ? 160 : 700);
    });
    slider.addEventListener("input", () => { stop(); show(); });
    show();
  }
}
