// Before anything is drawn, so that nothing flashes.
(() => {
  let theme = null;
  try { theme = localStorage.getItem('cellar-theme'); } catch { /* not allowed: as the system has it */ }
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
})();
