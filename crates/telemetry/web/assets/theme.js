// Sets the theme before anything is drawn, so that the page does not flash.
(() => {
  let theme = null;
  try { theme = localStorage.getItem('cellar-theme'); } catch { /* not allowed: use the system's theme */ }
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
})();
