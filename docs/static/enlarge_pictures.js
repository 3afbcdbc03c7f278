// A click on a picture opens it in its own size.
document.addEventListener("DOMContentLoaded", () => {
  for (const picture of document.querySelectorAll("article img")) {
    picture.addEventListener("click", () => window.open(picture.src));
  }
});
